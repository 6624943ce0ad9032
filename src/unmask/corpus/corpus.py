"""Read a corpus: shards of token ids, cut into sentences and documents.

In: a directory that `unmask.corpus.build` has written:

    manifest.json                 the `Manifest` below
    tokenizer/                    as `Tokenizer.save` writes it
    train-00000.tokens.npy        uint16 or uint32: the ids of the shard's tokens, without special tokens
    train-00000.sentences.npy     int64: the token with which each sentence starts, and the end
    train-00000.documents.npy     int64: the sentence with which each document starts, and the end
    train-00000.checksums.npy     uint32: of each document (`checksum`)

Out: the sentences of a document, by its number. Opening reads the manifest and looks at the sizes of the files, so that
a large corpus opens as fast as a small one; each document is checked whenever it is read; `Corpus.verify` reads
everything. Files are read, not mapped into memory: a process does not grow with what it has read, and a file that is
cut meanwhile is an error with a name, not the end of the process.
"""

from __future__ import annotations

import os
import weakref
import zlib
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from unmask.durable import sha256
from unmask.errors import UserError
from unmask.tokenizers.load import load_tokenizer
from unmask.tokenizers.tokenizer import Ids, Tokenizer

VERSION = 2
ARRAYS = ("tokens", "sentences", "documents", "checksums")
INDEX = np.dtype("<i8")
CHECKSUM = np.dtype("<u4")

_MANIFEST = "manifest.json"
_BUILD_AGAIN = "build the corpus again"
_OPEN_SHARDS = 100  # each holds four file descriptors, of which a process often has 1,024


class TokenizerEntry(msgspec.Struct, frozen=True):
    """The tokenizer of a corpus: the checksum of its content and how many pieces it has."""

    sha256: str
    size: int


class FileEntry(msgspec.Struct, frozen=True):
    """What a file must be."""

    sha256: str
    bytes: int


class ShardEntry(msgspec.Struct, frozen=True):
    """A shard: its files by name, and what it counts."""

    name: str
    files: dict[str, FileEntry]
    documents: int
    sentences: int
    tokens: int


class PartEntry(msgspec.Struct, frozen=True):
    """A part, "train" or "heldout"."""

    documents: int
    sentences: int
    tokens: int
    shards: list[ShardEntry]


class SkippedEntry(msgspec.Struct, frozen=True):
    """The documents that could not be used, and the first ten places."""

    count: int
    places: list[str]


class FrequentToken(msgspec.Struct, frozen=True):
    """The token that is most frequent in the train part, and its share there."""

    id: int
    share: float


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a corpus is and consists of."""

    version: int
    tokenizer: TokenizerEntry
    dtype: str
    train: PartEntry
    heldout: PartEntry
    sources: list[str]
    skipped: SkippedEntry
    most_frequent_token: FrequentToken


class _OpenShard:
    """The files of a shard, open until it is forgotten."""

    def __init__(self, directory: Path, shard: ShardEntry, tokens: str) -> None:
        self.entry = shard
        self._arrays: dict[str, tuple[int, int, np.dtype[Any]]] = {}
        for (kind, dtype), count in zip(dtypes(tokens).items(), lengths(shard).values(), strict=True):
            name = f"{shard.name}.{kind}.npy"
            handle = os.open(directory / name, os.O_RDONLY)
            weakref.finalize(self, os.close, handle)
            # The array lies at the end of its file, behind a header of which the manifest knows all.
            self._arrays[kind] = handle, shard.files[name].bytes - count * dtype.itemsize, dtype

    def read(self, kind: str, first: int, count: int) -> npt.NDArray[Any]:
        """Read a part of an array."""
        handle, start, dtype = self._arrays[kind]
        return np.frombuffer(os.pread(handle, count * dtype.itemsize, start + first * dtype.itemsize), dtype, count)


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
                remedy=_BUILD_AGAIN,
            ) from error

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


def dtypes(tokens: str) -> dict[str, np.dtype[Any]]:
    """Say of what type the arrays of a shard are, given that of its tokens."""
    return {"tokens": np.dtype(tokens), "sentences": INDEX, "documents": INDEX, "checksums": CHECKSUM}


def lengths(shard: ShardEntry) -> dict[str, int]:
    """Say how long the arrays of a shard are."""
    return {
        "tokens": shard.tokens,
        "sentences": shard.sentences + 1,
        "documents": shard.documents + 1,
        "checksums": shard.documents,
    }


def checksum(tokens: npt.NDArray[Any], ends: npt.NDArray[Any]) -> int:
    """Return the checksum of a document: the CRC-32 of its sentences' ends and then its ids.

    Args:
        tokens: its ids, as they lie in the file.
        ends: int64: 0, and after how many tokens of the document each sentence ends.
    """
    return zlib.crc32(tokens.data, zlib.crc32(ends.data))


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
        _check_tokenizer(tokenizer, self.manifest, self.directory / "tokenizer", _BUILD_AGAIN)
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
    manifest = _read_manifest(directory / _MANIFEST)
    if tokenizer is not None:
        remedy = "build the corpus with the tokenizer of this model, or use the one of the corpus"
        _check_tokenizer(tokenizer, manifest, directory, remedy)
    for name, part in (("train", manifest.train), ("heldout", manifest.heldout)):
        for shard in part.shards:
            _check_files(directory, shard)
        totals = [sum(getattr(shard, count) for shard in part.shards) for count in ("documents", "sentences", "tokens")]
        if totals != [part.documents, part.sentences, part.tokens]:
            raise UserError(
                f"the counts of '{name}' are not those of its shards", file=directory / _MANIFEST, remedy=_BUILD_AGAIN
            )
    return Corpus(directory, manifest)


def verify_shard(directory: Path, shard: ShardEntry, dtype: str, vocabulary: int) -> None:
    """Read the files of a shard and check their checksums, and what these do not tell: that they were written right.

    Args:
        directory: of the corpus.
        shard: its entry in the manifest.
        dtype: of the tokens.
        vocabulary: how many ids there are.

    Raises:
        UserError: a file is missing or damaged.
    """
    _check_files(directory, shard)
    for name, entry in shard.files.items():
        if sha256(directory / name) != entry.sha256:
            raise UserError(
                "is damaged: its sha256 differs", file=directory / name, remedy=f"copy it again or {_BUILD_AGAIN}"
            )
    paths = {kind: directory / f"{shard.name}.{kind}.npy" for kind in ARRAYS}
    arrays = {kind: map_array(path) for kind, path in paths.items()}
    for kind in ("tokens", "checksums"):
        want, count = dtypes(dtype)[kind], lengths(shard)[kind]
        if arrays[kind].dtype != want or arrays[kind].shape != (count,):
            raise UserError(f"does not hold {count} numbers of {want.str}", file=paths[kind], remedy=_BUILD_AGAIN)
    _check_index(arrays["sentences"], shard.sentences, shard.tokens, paths["sentences"])
    _check_index(arrays["documents"], shard.documents, shard.sentences, paths["documents"])
    if (largest := int(arrays["tokens"].max(initial=0))) >= vocabulary:
        raise UserError(
            f"has the token id {largest}, but the vocabulary has {vocabulary} pieces",
            file=paths["tokens"],
            remedy=_BUILD_AGAIN,
        )


def map_array(path: Path) -> npt.NDArray[Any]:
    """Map a file of numpy's format into memory, read-only.

    Raises:
        UserError: it is none.
    """
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"is no array ({error})", file=path, remedy=_BUILD_AGAIN) from error


def _read_manifest(path: Path) -> Manifest:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot be read ({error.strerror})", file=path, remedy="is this the folder of a corpus?"
        ) from error
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (ValueError, RecursionError) as error:
        raise UserError(f"is no manifest of a corpus ({error})", file=path, remedy=_BUILD_AGAIN) from error
    if manifest.version != VERSION:
        raise UserError(f"has version {manifest.version}, not {VERSION}", file=path, remedy=_BUILD_AGAIN)
    if manifest.dtype not in ("<u2", "<u4"):
        raise UserError(f"knows no tokens of type '{manifest.dtype}'", file=path, remedy=_BUILD_AGAIN)
    return manifest


def _check_tokenizer(tokenizer: Tokenizer, manifest: Manifest, place: Path, remedy: str) -> None:
    if tokenizer.sha256 != manifest.tokenizer.sha256:
        raise UserError(
            f"the tokenizer ({tokenizer.size} pieces, sha256 {tokenizer.sha256[:12]}) is not the one that the corpus "
            f"was built with ({manifest.tokenizer.size} pieces, sha256 {manifest.tokenizer.sha256[:12]})",
            file=place,
            remedy=remedy,
        )


def _check_files(directory: Path, shard: ShardEntry) -> None:
    """Check that the files of a shard are there in full."""
    if set(shard.files) != {f"{shard.name}.{kind}.npy" for kind in ARRAYS} or Path(shard.name).name != shard.name:
        raise UserError(
            f"the files of shard '{shard.name}' are not {', '.join(ARRAYS)}",
            file=directory / _MANIFEST,
            remedy=_BUILD_AGAIN,
        )
    for name, entry in shard.files.items():
        path = directory / name
        if not path.is_file():
            raise UserError("is missing", file=path, remedy=_BUILD_AGAIN)
        if path.stat().st_size != entry.bytes:
            raise UserError(
                f"has {path.stat().st_size} bytes, not {entry.bytes}",
                file=path,
                remedy=f"copy it again or {_BUILD_AGAIN}",
            )


def _check_index(index: npt.NDArray[Any], count: int, end: int, path: Path) -> None:
    """Check that an index cuts `end` things into `count` pieces, none of them empty."""
    if (
        index.dtype != INDEX
        or index.shape != (count + 1,)
        or index[0] != 0
        or index[-1] != end
        or (np.diff(index) <= 0).any()
    ):
        raise UserError(f"is no index of {count} pieces of {end}", file=path, remedy=_BUILD_AGAIN)
