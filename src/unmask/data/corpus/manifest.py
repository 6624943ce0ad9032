"""The format of a corpus on disk: the names, types and counts of its files.

manifest.json                 the `CorpusManifest` below
tokenizer/                    as written by `Tokenizer.save`
train-00000.tokens.npy        uint16 or uint32: the ids of the shard's tokens, without special tokens
train-00000.sentences.npy     int64: the index of the first token of each sentence, and the end
train-00000.documents.npy     int64: the index of the first sentence of each document, and the end
train-00000.checksums.npy     uint32: the checksum of each document (`checksum`)
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from unmask.support.errors import UserError, counted

VERSION = 2
ARRAYS = ("tokens", "sentences", "documents", "checksums")
INDEX = np.dtype("<i8")
CHECKSUM = np.dtype("<u4")
NAME = "manifest.json"
BUILD_AGAIN = "build the corpus again"


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
