"""Cleaned documents on disk: their texts and signatures, a set of files for each source, written once.

    00000.texts      each document in UTF-8, followed by NUL
    00000.urls       the address of each document, followed by NUL; empty where it is not known
    00000.ends       int64: the end of each document in the texts
    00000.identities uint64: a key for each document, equal for equal ones
    00000.bands      uint64: the bands of each document
    00000.lines      uint64: a key for each line of each document
    00000.counts     int64: number of lines of each document
    00000.hosts      uint64: a key for the host of each document; 0: not known
    00000.passages   uint64: a key for each passage of each document that is compared
    00000.passage_counts  int64: number of these passages of each document
    00000.json       what was dropped and skipped; complete only if this file is there

Files other than these three are there only if the rules need them. Each is read in blocks or memory-mapped, so that
memory does not grow with the text.

**Signatures** are numbers that are equal for equal documents, and likely to be for nearly equal ones: 64 bits of its
folded text (`labelled.folding`), of its lines, passages and host, and a number for each band of its MinHash signature.
Nearly equal documents, by the Jaccard similarity s of the n-grams of bytes of their folded texts (those of
`labelled.duplicates`), have at least one band in common with probability 1 - (1 - s^ROWS)^BANDS: 0.93 at 0.7, 0.998 at
0.8, all but certain at 0.9 (locality-sensitive hashing: Leskovec et al., Mining of Massive Datasets, 3.4).

The signature is that of one permutation hashing (Li et al. 2012): each n-gram has one hash, whose upper bits choose one
of the places of the signature, which has the smallest of them; a place without any takes that of the next one that has
(Shrivastava and Li 2014).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from unmask.data.cleaning.overlap import word_hashes
from unmask.data.cleaning.urls import host_of
from unmask.data.corpus.hashes import Hashes, mixed, segment_hashes
from unmask.data.labelled.duplicates import ngram_hashes
from unmask.data.labelled.folding import fold
from unmask.data.text.text_copy import as_ended, read_ended
from unmask.support.durable import create, sync
from unmask.support.fingerprint import sha256

BANDS, ROWS = 21, 6
"""Bands of a signature, and the number of hashes in each."""
WORDS, EVERY = 50, 4
"""Number of words of a passage, and of how many passages one is compared."""
KEY = np.dtype("<u8")
_SIZE = BANDS * ROWS
_STARTS = np.array([(place << 64) // _SIZE + (place > 0) for place in range(_SIZE)], np.uint64)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
FORMAT = 4
"""Number of this format; what has another one is made again."""
INDEX = np.dtype("<i8")
_TYPES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "ends": (INDEX, ()),
    "identities": (KEY, ()),
    "bands": (KEY, (BANDS,)),
    "lines": (KEY, ()),
    "counts": (INDEX, ()),
    "hosts": (KEY, ()),
    "passages": (KEY, ()),
    "passage_counts": (INDEX, ()),
}


def file_checksums(folder: Path, index: int, needed: frozenset[str]) -> dict[str, str]:
    """Return the SHA-256 of the files of a source, by their names, apart from those that are missing.

    Args:
        folder, index, needed: see `StoreWriter`.
    """
    paths = {name: _file(folder, index, name) for name in _names(needed)}
    return {name: sha256(path) for name, path in paths.items() if path.is_file()}


def _names(needed: frozenset[str]) -> list[str]:
    return ["texts", "urls", "ends", *sorted(needed)]


def _file(folder: Path, index: int, name: str) -> Path:
    return folder / f"{index:05d}.{name}"


class StoreWriter:
    """Writes the documents of a source.

    Args:
        folder: the folder of the store.
        index: number of the source.
        needed: which of the files beside the texts to write.
    """

    def __init__(self, folder: Path, index: int, needed: frozenset[str]) -> None:
        self._needed, self._end = needed, 0
        self._stack = ExitStack()
        self._files: dict[str, BinaryIO] = {
            name: self._stack.enter_context(create(_file(folder, index, name))) for name in _names(needed)
        }

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stack.close()
        for file in () if kind else self._files.values():  # before it is recorded that they are complete
            sync(Path(file.name))

    def add(self, text: str, url: str = "") -> None:
        """Write a document."""
        content = text.encode()
        self._end += len(content) + 1
        self._files["texts"].write(content + b"\0")
        self._files["urls"].write(as_ended(url))
        self._files["ends"].write(self._end.to_bytes(8, "little"))
        folded = fold(text) if self._needed & {"identities", "bands"} else b""
        if "identities" in self._needed:
            self._files["identities"].write(identity(folded))
        if "bands" in self._needed:
            self._files["bands"].write(bands(folded).tobytes())
        if "lines" in self._needed:
            keys = line_keys(text.split("\n\n"))
            self._files["lines"].write(keys.tobytes())
            self._files["counts"].write(len(keys).to_bytes(8, "little"))
        if "hosts" in self._needed:
            self._files["hosts"].write(host_key(url))
        if "passages" in self._needed:
            passages = passage_keys(text)
            self._files["passages"].write(passages.tobytes())
            self._files["passage_counts"].write(len(passages).to_bytes(8, "little"))


class Store:
    """Reads the documents of all sources.

    Args:
        folder: the folder of the store.
        sources: number of sources.
    """

    def __init__(self, folder: Path, sources: int) -> None:
        self.folder, self.sources = folder, sources
        self.sizes = [self._path(index, "ends").stat().st_size // INDEX.itemsize for index in range(sources)]
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)

    def __len__(self) -> int:
        return int(self.starts[-1])

    @property
    def has_urls(self) -> bool:
        """Whether the address of a document is known."""
        return any(self._path(index, "urls").stat().st_size > size for index, size in enumerate(self.sizes))

    def _path(self, index: int, name: str) -> Path:
        return _file(self.folder, index, name)

    def column(self, index: int, name: str) -> np.ndarray:
        """Return an array of a source, memory-mapped."""
        dtype, shape = _TYPES[name]
        path = self._path(index, name)
        if path.stat().st_size == 0:
            return np.zeros((0, *shape), dtype)
        return np.memmap(path, dtype, "r").reshape(-1, *shape)

    def text(self, document: int) -> str:
        """Return the text of a document, given its number over all sources."""
        index = int(np.searchsorted(self.starts, document, side="right")) - 1
        ends, row = self.column(index, "ends"), document - int(self.starts[index])
        start = int(ends[row - 1]) if row else 0
        with self._path(index, "texts").open("rb") as file:
            file.seek(start)
            return file.read(int(ends[row]) - 1 - start).decode()

    def texts(self, chosen: range | None = None) -> Iterator[str]:
        """Yield the texts of all documents, or those of the chosen sources, in order."""
        return self._strings("texts", chosen)

    def urls(self, chosen: range | None = None) -> Iterator[str]:
        """Yield the addresses of all documents, or those of the chosen sources, in order."""
        return self._strings("urls", chosen)

    def _strings(self, name: str, chosen: range | None) -> Iterator[str]:
        for index in chosen or range(self.sources):
            yield from read_ended(self._path(index, name))


def identity(folded: bytes) -> bytes:
    """Return 8 bytes that are equal for equal folded texts, and for no others: among 50 million, by chance of 1e-4."""
    return hashlib.blake2b(folded, digest_size=8).digest()


def bands(folded: bytes) -> np.ndarray:
    """Return a number for each band, (BANDS,) uint64; zeros for a text that is shorter than an n-gram."""
    hashes = np.sort(ngram_hashes(folded))
    if not len(hashes):
        return np.zeros(BANDS, KEY)
    places = np.searchsorted(hashes, _STARTS)
    ends = np.append(places[1:], len(hashes))
    filled = np.flatnonzero(places < ends)
    smallest = hashes[np.minimum(places, len(hashes) - 1)]
    if len(filled) < _SIZE:
        following = np.searchsorted(filled, np.arange(_SIZE))
        distance = np.append(filled, filled[0] + _SIZE)[following] - np.arange(_SIZE)
        smallest = smallest[np.append(filled, filled[0])[following]] + distance.astype(np.uint64) * _FACTOR
    rows = smallest.reshape(BANDS, ROWS)
    numbers = np.arange(1, BANDS + 1, dtype=np.uint64)  # different bands are not compared
    for row in range(ROWS):
        numbers = (numbers ^ rows[:, row]) * _FACTOR
        numbers ^= numbers >> np.uint64(32)
    return numbers


def line_keys(lines: list[str]) -> np.ndarray:
    """Return a number for each line, (lines,) uint64, equal for lines with the same folded text."""
    digests = b"".join(hashlib.blake2b(fold(line), digest_size=8).digest() for line in lines)
    return np.frombuffer(digests, KEY)


def passage_keys(text: str) -> Hashes:
    """Return the hashes of the passages of a text that are compared, (passages,) uint64.

    A passage is a window of `WORDS` words, without case and punctuation. Those with the smallest hashes are compared,
    one of `EVERY`: a sample that is the same in each document (Manber 1994, "Finding similar files in a large file
    system").
    """
    words = mixed(word_hashes(text))
    starts = np.arange(max(0, len(words) - WORDS + 1))
    keys = segment_hashes(words, starts, starts + WORDS)
    return keys[keys < np.uint64((1 << 64) // EVERY)]


def host_key(url: str) -> bytes:
    """Return 8 bytes that are equal for addresses of one host; zeros if there is none."""
    host = host_of(url)
    return hashlib.blake2b(host.encode("utf8", "replace"), digest_size=8).digest() if host else bytes(8)
