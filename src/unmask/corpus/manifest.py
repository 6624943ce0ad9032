"""What a corpus on disk is: the names, types and counts of its files.

manifest.json                 the `Manifest` below
tokenizer/                    as `Tokenizer.save` writes it
train-00000.tokens.npy        uint16 or uint32: the ids of the shard's tokens, without special tokens
train-00000.sentences.npy     int64: the token with which each sentence starts, and the end
train-00000.documents.npy     int64: the sentence with which each document starts, and the end
train-00000.checksums.npy     uint32: of each document (`checksum`)
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from unmask.errors import UserError, counted

VERSION = 2
ARRAYS = ("tokens", "sentences", "documents", "checksums")
INDEX = np.dtype("<i8")
CHECKSUM = np.dtype("<u4")
NAME = "manifest.json"
BUILD_AGAIN = "build the corpus again"


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

    @property
    def amounts(self) -> str:
        """What is in it, in words."""
        amounts = ((self.documents, "document"), (self.sentences, "sentence"), (self.tokens, "token"))
        return ", ".join(counted(*amount) for amount in amounts)


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


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a corpus.

    Raises:
        UserError: it is none, or one of another version.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot be read ({error.strerror})", file=path, remedy="is this the folder of a corpus?"
        ) from error
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (ValueError, RecursionError) as error:
        raise UserError(f"is no manifest of a corpus ({error})", file=path, remedy=BUILD_AGAIN) from error
    if manifest.version != VERSION:
        raise UserError(f"has version {manifest.version}, not {VERSION}", file=path, remedy=BUILD_AGAIN)
    if manifest.dtype not in ("<u2", "<u4"):
        raise UserError(f"knows no tokens of type '{manifest.dtype}'", file=path, remedy=BUILD_AGAIN)
    return manifest
