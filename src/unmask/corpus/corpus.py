"""Read a corpus: shards of token ids, cut into sentences and documents.

In: a directory that `unmask.corpus.build` has written (`unmask.corpus.manifest` says what is in it). Out: the sentences
of a document, by its number. Opening reads the manifest and looks at the sizes of the files, so that a large corpus
opens as fast as a small one; each document is checked whenever it is read; `Corpus.verify` reads everything. Files are
read, not mapped into memory: a process does not grow with what it has read, and a file that is cut meanwhile is an
error with a name, not the end of the process.
"""

from __future__ import annotations

import os
import weakref
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unmask.corpus.manifest import (
    BUILD_AGAIN,
    NAME,
    Manifest,
    PartEntry,
    ShardEntry,
    checksum,
    dtypes,
    lengths,
    read_manifest,
)
from unmask.corpus.verify import check_files, check_tokenizer, verify_shard
from unmask.errors import UserError
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.tokenizer import Ids, Tokenizer

_OPEN_SHARDS = 100  # each holds four file descriptors, of which a process often has 1,024


class _OpenShard:
    """The files of a shard, open until it is forgotten."""

    def __init__(self, directory: Path, shard: ShardEntry, tokens: str) -> None:
        self.entry = shard
        self._arrays: dict[str, tuple[int, int, np.dtype[Any]]] = {}
        for (kind, dtype), count in zip(dtypes(tokens).items(), lengths(shard).values(), strict=True):
            name = f"{shard.name}.{kind}.npy"
            handle = os.open(directory / name, os.O_RDONLY | getattr(os, "O_BINARY", 0))
            weakref.finalize(self, os.close, handle)
            # The array lies at the end of its file, behind a header of which the manifest knows all.
            self._arrays[kind] = handle, shard.files[name].bytes - count * dtype.itemsize, dtype

    def read(self, kind: str, first: int, count: int) -> npt.NDArray[Any]:
        """Read a part of an array."""
        handle, start, dtype = self._arrays[kind]
        return np.frombuffer(_read_at(handle, count * dtype.itemsize, start + first * dtype.itemsize), dtype, count)


def _read_at(handle: int, count: int, place: int) -> bytes:
    """Read bytes from a place in a file."""
    if hasattr(os, "pread"):
        return os.pread(handle, count, place)
    os.lseek(handle, place, os.SEEK_SET)  # Windows
    return os.read(handle, count)


class Documents:
    """The documents of one part, over all its shards. Cheap to pickle: files are opened when they are first read.

    Args:
        directory: of the corpus.
        manifest: of the corpus.
        part: its entry there.
    """

    def __init__(self, directory: Path, manifest: Manifest, part: PartEntry) -> None:
        self._directory = directory
        self._part = part
        self._dtype = manifest.dtype
        self._vocabulary = manifest.tokenizer.size
        self._starts = list(accumulate((shard.documents for shard in part.shards), initial=0))
        self._open: dict[int, _OpenShard] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    def __len__(self) -> int:
        return self._part.documents

    @property
    def num_sentences(self) -> int:
        """How many sentences all documents have together."""
        return self._part.sentences

    @property
    def num_tokens(self) -> int:
        """How many tokens all documents have together, without special tokens."""
        return self._part.tokens

    def sentences(self, index: int) -> list[Ids]:
        """Read one document and check it.

        Args:
            index: its number in this part, from 0.

        Returns:
            The ids of each of its sentences, of which there is at least one, and none is empty.

        Raises:
            IndexError: there are not so many documents.
            UserError: it is damaged (the message names the file).
        """
        if not 0 <= index < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        number = bisect_right(self._starts, index) - 1
        try:
            return self._read(self._shard(number), index - self._starts[number])
        except (OSError, ValueError) as error:
            shard = self._part.shards[number]
            verify_shard(self._directory, shard, self._dtype, self._vocabulary)  # names the file that is wrong
            raise UserError(
                f"document {index} of the corpus cannot be read ({error})",
                file=self._directory / shard.name,
                remedy=BUILD_AGAIN,
            ) from error

    def lengths(self) -> npt.NDArray[np.int64]:
        """Read how many tokens each document has, (documents,), without special tokens: from the index, not the text.

        Raises:
            UserError: the index is damaged (the message names the file).
        """
        found = [np.zeros(0, np.int64)]
        for number, shard in enumerate(self._part.shards):
            try:
                opened = self._shard(number)
                bounds = opened.read("sentences", 0, shard.sentences + 1)
                found.append(np.diff(bounds[opened.read("documents", 0, shard.documents + 1)].astype(np.int64)))
                if (found[-1] < 1).any():
                    raise ValueError("the index of documents is wrong")
            except (OSError, ValueError, IndexError) as error:
                verify_shard(self._directory, shard, self._dtype, self._vocabulary)  # names the file that is wrong
                raise UserError(
                    f"the index of the corpus cannot be read ({error})",
                    file=self._directory / shard.name,
                    remedy=BUILD_AGAIN,
                ) from error
        return np.concatenate(found)

    def _shard(self, number: int) -> _OpenShard:
        if number not in self._open:
            if len(self._open) == _OPEN_SHARDS:
                del self._open[next(iter(self._open))]
            self._open[number] = _OpenShard(self._directory, self._part.shards[number], self._dtype)
        return self._open[number]

    def _read(self, shard: _OpenShard, place: int) -> list[Ids]:
        first, end = shard.read("documents", place, 2).tolist()
        if not 0 <= first < end <= shard.entry.sentences:
            raise ValueError("the index of documents is wrong")
        bounds = shard.read("sentences", first, end - first + 1)
        start, stop = int(bounds[0]), int(bounds[-1])
        if not 0 <= start < stop <= shard.entry.tokens:
            raise ValueError("the index of sentences is wrong")
        tokens = shard.read("tokens", start, stop - start)
        ends = bounds - start
        if checksum(tokens, ends) != shard.read("checksums", place, 1)[0]:
            raise ValueError("its checksum differs")
        if tokens.max() >= self._vocabulary:
            raise ValueError("a token id is not in the vocabulary")
        ids = tokens.astype(np.int32)
        return [ids[start:stop] for start, stop in pairwise(ends.tolist())]


class Corpus:
    """A corpus on disk.

    Attributes:
        directory: where it lies.
        manifest: what it consists of.
        train, heldout: the documents of its parts.
    """

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory = directory
        self.manifest = manifest
        self.train = Documents(directory, manifest, manifest.train)
        self.heldout = Documents(directory, manifest, manifest.heldout)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer with which it was built.

        Raises:
            UserError: it is damaged, or not the one that the manifest names.
        """
        tokenizer = load_tokenizer(self.directory / "tokenizer")
        check_tokenizer(tokenizer, self.manifest, self.directory / "tokenizer", BUILD_AGAIN)
        return tokenizer

    def verify(self) -> None:
        """Read every file and check it.

        Raises:
            UserError: one is damaged (the message names it).
        """
        for part in (self.manifest.train, self.manifest.heldout):
            for shard in part.shards:
                verify_shard(self.directory, shard, self.manifest.dtype, self.manifest.tokenizer.size)
        _ = self.tokenizer


def open_corpus(directory: str | Path, *, tokenizer: Tokenizer | None = None) -> Corpus:
    """Open a corpus; check the manifest and that all files are there in full.

    Args:
        directory: where it lies.
        tokenizer: the one that it must have been built with.

    Returns:
        The corpus.

    Raises:
        UserError: it is no corpus, files are missing or cut (the message names the first), or its tokenizer is another
            one.
    """
    directory = Path(directory)
    manifest = read_manifest(directory / NAME)
    if tokenizer is not None:
        remedy = "build the corpus with the tokenizer of this model, or use the one of the corpus"
        check_tokenizer(tokenizer, manifest, directory, remedy)
    for name, part in (("train", manifest.train), ("heldout", manifest.heldout)):
        for shard in part.shards:
            check_files(directory, shard)
        totals = [sum(getattr(shard, count) for shard in part.shards) for count in ("documents", "sentences", "tokens")]
        if totals != [part.documents, part.sentences, part.tokens]:
            raise UserError(
                f"the counts of '{name}' are not those of its shards", file=directory / NAME, remedy=BUILD_AGAIN
            )
    return Corpus(directory, manifest)
