"""SentencePiece's model files (`spiece.model`): a protocol buffer, of which the few fields that matter are read.

In: a file. Out: its pieces with scores, which of them is the unknown one, and the table of its normaliser. Nothing but
bytes is interpreted (sentencepiece_model.proto of google/sentencepiece; encoding: protobuf.dev).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unmask.errors import UserError

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE = 3
_CHARSMAP = 2
_UNIGRAM = 1
_UNKNOWN = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class SentencePieceModel:
    """What a file holds.

    Attributes:
        pieces: with their scores, in the order of ids.
        unknown: the id of what stands for all that the pieces cannot write.
        charsmap: the normaliser's table; empty where there is none.
    """

    pieces: list[tuple[str, float]]
    unknown: int
    charsmap: bytes


def read_spiece(path: Path) -> SentencePieceModel:
    """Read a file.

    Raises:
        UserError: it cannot be read, is no such file, or no unigram model.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error
    pieces: list[tuple[str, float]] = []
    unknown, charsmap = [], b""
    kind: int | bytes = _UNIGRAM
    try:
        for number, value in _fields(content):
            if number == _PIECES:
                piece = dict(_fields(_of(bytes, value)))
                if piece.get(_TYPE) == _UNKNOWN:
                    unknown.append(len(pieces))
                score = struct.unpack("<f", _of(bytes, piece.get(_SCORE, bytes(4))))[0]
                pieces.append((_of(bytes, piece[_PIECE]).decode(), score))
            elif number == _TRAINER:
                kind = dict(_fields(_of(bytes, value))).get(_MODEL_TYPE, _UNIGRAM)
            elif number == _NORMALIZER:
                charsmap = _of(bytes, dict(_fields(_of(bytes, value))).get(_CHARSMAP, b""))
    except (ValueError, KeyError, IndexError, TypeError, struct.error) as error:
        raise UserError("is no model of SentencePiece", file=path, remedy="copy it again") from error
    if not pieces:
        raise UserError("the vocabulary is empty", file=path)
    if kind != _UNIGRAM:
        raise UserError("is no unigram model, the kind of SentencePiece's that is known here", file=path)
    if len(unknown) != 1:
        raise UserError(f"has {len(unknown)} unknown pieces instead of one", file=path)
    return SentencePieceModel(pieces, unknown[0], charsmap)


def _of(kind: type[bytes], value: object) -> bytes:
    if not isinstance(value, kind):
        raise TypeError(f"not {kind.__name__}")
    return value


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Give the number and the value of each field of a message: a whole number, or the bytes of anything else.

    Raises:
        ValueError: the message breaks off.
        IndexError: likewise.
    """
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        wire = key & 7
        if wire == _VARINT:
            value, at = _varint(content, at)
            yield key >> 3, value
            continue
        if wire == _BYTES:
            size, at = _varint(content, at)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        if at + size > len(content):
            raise ValueError("the message breaks off")
        yield key >> 3, content[at : at + size]
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a whole number, and the place after it."""
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
