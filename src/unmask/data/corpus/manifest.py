"""The format of a corpus on disk: the names, types and counts of its files, and checks of them against the manifest.

manifest.json                 the `CorpusManifest` below
tokenizer/                    as written by `Tokenizer.save`
cleaning.json                 what was dropped, and samples of it, if text was cleaned (`data.cleaning.tally.Tally`)
sample.jsonl                  texts of some documents of the train part (`data.corpus.sample`)
train-00000.tokens.npy        uint16 or uint32: the ids of the shard's tokens, without special tokens
train-00000.sentences.npy     int64: the index of the first token of each sentence, and the end
train-00000.documents.npy     int64: the index of the first sentence of each document, and the end
train-00000.checksums.npy     uint32: the checksum of each document (`checksum`)
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from unmask.data.corpus.places import Place, drop_copy, file_at, shard_file
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.support.errors import UserError, counted
from unmask.support.fingerprint import sha256

VERSION = 2
ARRAYS = ("tokens", "sentences", "documents", "checksums")
INDEX = np.dtype("<i8")
CHECKSUM = np.dtype("<u4")
NAME = "manifest.json"
CLEANING = "cleaning.json"
BUILD_AGAIN = "build the corpus again"
_COUNTED = 1 << 20  # number of tokens that are counted at a time


class TokenizerEntry(msgspec.Struct, frozen=True):
    """The tokenizer of a corpus: the checksum of its content, and the size of its vocabulary."""

    sha256: str
    size: int


class FileEntry(msgspec.Struct, frozen=True):
    """The checksum and the size of a file."""

    sha256: str
    bytes: int


class ShardEntry(msgspec.Struct, frozen=True):
    """A shard: its files by name, and its numbers of documents, sentences and tokens."""

    name: str
    files: dict[str, FileEntry]
    documents: int
    sentences: int
    tokens: int


class PartEntry(msgspec.Struct, frozen=True):
    """A part of the corpus, "train" or "heldout"."""

    documents: int
    sentences: int
    tokens: int
    shards: list[ShardEntry]

    @classmethod
    def of(cls, shards: list[ShardEntry]) -> PartEntry:
        """Return the entry of a part with these shards."""
        documents, sentences, tokens = (
            sum(getattr(shard, name) for shard in shards) for name in ("documents", "sentences", "tokens")
        )
        return cls(documents, sentences, tokens, shards)

    @property
    def amounts(self) -> str:
        """The numbers of documents, sentences and tokens, as text."""
        amounts = ((self.documents, "document"), (self.sentences, "sentence"), (self.tokens, "token"))
        return ", ".join(counted(*amount) for amount in amounts)


class SkippedEntry(msgspec.Struct, frozen=True):
    """The number of documents that were skipped, and the first ten of them as "file:line: reason"."""

    count: int
    places: list[str]


class FrequentToken(msgspec.Struct, frozen=True):
    """The most frequent token of the train part, and its relative frequency there."""

    id: int
    share: float

    @classmethod
    def of(cls, counts: np.ndarray) -> FrequentToken:
        """Return the most frequent token, given how often each occurs, (vocabulary,)."""
        id = int(counts.argmax())
        return cls(id, int(counts[id]) / max(1, int(counts.sum())))


class CorpusManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The manifest of a corpus."""

    version: int
    tokenizer: TokenizerEntry
    dtype: str
    train: PartEntry
    heldout: PartEntry
    sources: list[str]
    skipped: SkippedEntry
    most_frequent_token: FrequentToken


def dtypes(tokens: str) -> dict[str, np.dtype[Any]]:
    """Return the data types of the arrays of a shard, given that of its tokens."""
    return {"tokens": np.dtype(tokens), "sentences": INDEX, "documents": INDEX, "checksums": CHECKSUM}


def lengths(shard: ShardEntry) -> dict[str, int]:
    """Return the lengths of the arrays of a shard."""
    return {
        "tokens": shard.tokens,
        "sentences": shard.sentences + 1,
        "documents": shard.documents + 1,
        "checksums": shard.documents,
    }


def checksum(tokens: npt.NDArray[Any], ends: npt.NDArray[Any]) -> int:
    """Return the checksum of a document: the CRC-32 of the ends of its sentences followed by its ids.

    Args:
        tokens: the ids of the document, as stored in the file.
        ends: int64: 0, and the end of each sentence, as the number of tokens of the document up to it.
    """
    return zlib.crc32(tokens.data, zlib.crc32(ends.data))


def count_tokens(tokens: npt.NDArray[Any], counts: npt.NDArray[np.int64]) -> None:
    """Add how often each token occurs to counts, (vocabulary,)."""
    for start in range(0, len(tokens), _COUNTED):  # numpy needs 8 bytes per counted token
        counts += np.bincount(tokens[start : start + _COUNTED], minlength=len(counts))


def read_manifest(path: Path) -> CorpusManifest:
    """Read the manifest of a corpus.

    Raises:
        UserError: the file is not a manifest, or one of another version.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot be read ({error.strerror})", file=path, remedy="is this the directory of a corpus?"
        ) from error
    try:
        manifest = msgspec.json.decode(content, type=CorpusManifest)
    except (ValueError, RecursionError) as error:
        raise UserError(f"is not the manifest of a corpus ({error})", file=path, remedy=BUILD_AGAIN) from error
    if manifest.version != VERSION:
        raise UserError(f"has version {manifest.version}, not {VERSION}", file=path, remedy=BUILD_AGAIN)
    if manifest.dtype not in ("<u2", "<u4"):
        raise UserError(f"has tokens of the unknown type '{manifest.dtype}'", file=path, remedy=BUILD_AGAIN)
    frequent, size = manifest.most_frequent_token.id, manifest.tokenizer.size
    if not 0 <= frequent < size:
        raise UserError(f"has the token {frequent} of a vocabulary of {size}", file=path, remedy=BUILD_AGAIN)
    return manifest


def verify_shard(directory: Place, shard: ShardEntry, dtype: str, vocabulary: int) -> None:
    """Read the files of a shard; check their checksums, and that their contents are consistent.

    Args:
        directory: directory of the corpus.
        shard: entry of the shard in the manifest.
        dtype: data type of the tokens.
        vocabulary: size of the vocabulary.

    Raises:
        UserError: a file is missing or damaged.
    """
    check_files(directory, shard)
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(shard_file(directory, name, entry.bytes, entry.sha256))
            for name, entry in shard.files.items()
        }
        for name, path in files.items():
            if sha256(path) != (known := shard.files[name].sha256):
                remedy = f"copy it again or {BUILD_AGAIN}"
                if drop_copy(directory, name, known):
                    remedy = "its copy in the cache is removed; run the same command again"
                raise UserError("is damaged: its sha256 differs", file=path, remedy=remedy)
        paths = {kind: files[f"{shard.name}.{kind}.npy"] for kind in ARRAYS}
        _check_arrays(paths, shard, dtype, vocabulary)


def _check_arrays(paths: Mapping[str, Path], shard: ShardEntry, dtype: str, vocabulary: int) -> None:
    """Check the content of the files of a shard; see `verify_shard`."""
    arrays = {kind: map_array(path) for kind, path in paths.items()}
    for kind in ("tokens", "checksums"):
        want, count = dtypes(dtype)[kind], lengths(shard)[kind]
        if arrays[kind].dtype != want or arrays[kind].shape != (count,):
            raise UserError(f"does not contain {count} values of type {want.str}", file=paths[kind], remedy=BUILD_AGAIN)
    _check_index(arrays["sentences"], shard.sentences, shard.tokens, paths["sentences"])
    _check_index(arrays["documents"], shard.documents, shard.sentences, paths["documents"])
    if (largest := int(arrays["tokens"].max(initial=0))) >= vocabulary:
        raise UserError(
            f"has the token id {largest}, but the vocabulary has {vocabulary} tokens",
            file=paths["tokens"],
            remedy=BUILD_AGAIN,
        )


def map_array(path: Path) -> npt.NDArray[Any]:
    """Memory-map a file in NumPy's format, read-only.

    Raises:
        UserError: the file is not in this format.
    """
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"is not an array ({error})", file=path, remedy=BUILD_AGAIN) from error


def check_tokenizer(tokenizer: Tokenizer, manifest: CorpusManifest, path: Path, remedy: str) -> None:
    """Check that a tokenizer is the one that a corpus was built with.

    Raises:
        UserError: it is another tokenizer.
    """
    if tokenizer.sha256 != manifest.tokenizer.sha256:
        raise UserError(
            f"the tokenizer ({tokenizer.size} tokens, sha256 {tokenizer.sha256[:12]}) is not the one that the corpus "
            f"was built with ({manifest.tokenizer.size} tokens, sha256 {manifest.tokenizer.sha256[:12]})",
            file=path,
            remedy=remedy,
        )


def check_files(directory: Place, shard: ShardEntry) -> None:
    """Check that the files of a shard exist and have the right size; at a URL, they are checked when they are read.

    Raises:
        UserError: a file is missing or truncated.
    """
    if set(shard.files) != {f"{shard.name}.{kind}.npy" for kind in ARRAYS} or Path(shard.name).name != shard.name:
        raise UserError(
            f"the files of shard '{shard.name}' are not those of a shard ({', '.join(ARRAYS)})",
            file=file_at(directory, NAME),
            remedy=BUILD_AGAIN,
        )
    if not isinstance(directory, Path):
        return
    for name, entry in shard.files.items():
        path = directory / name
        if not path.is_file():
            raise UserError("is missing", file=path, remedy=BUILD_AGAIN)
        if path.stat().st_size != entry.bytes:
            raise UserError(
                f"has {path.stat().st_size} bytes, not {entry.bytes}",
                file=path,
                remedy=f"copy it again or {BUILD_AGAIN}",
            )


def _check_index(index: npt.NDArray[Any], count: int, end: int, path: Path) -> None:
    """Check that an index divides `end` elements into `count` segments, none of them empty."""
    if (
        index.dtype != INDEX
        or index.shape != (count + 1,)
        or index[0] != 0
        or index[-1] != end
        or (np.diff(index) <= 0).any()
    ):
        raise UserError(f"is not an index of {count} segments of {end} elements", file=path, remedy=BUILD_AGAIN)
