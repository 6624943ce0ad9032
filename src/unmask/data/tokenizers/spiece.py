"""Reader of SentencePiece model files (`spiece.model`), which are protocol buffers.

Input: a file. Output: its pieces with their scores, the id of the unknown piece, and the table of its normalizer. Only
the few fields needed for this are read, without generated code (sentencepiece_model.proto of google/sentencepiece;
encoding: protobuf.dev).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unmask.data.text.files import read_whole
from unmask.support.errors import UserError

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_PIECE, _SCORE, _TYPE = 1, 2, 3
_MODEL_TYPE = 3
_CHARSMAP = 2
_UNIGRAM = 1
_UNKNOWN = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class SentencePieceModel:
    """The contents of a file.

    Attributes:
        pieces: the pieces with their scores, in the order of ids.
        unknown: the id of the unknown piece.
        charsmap: the normalizer's table; empty if there is none.
    """

    pieces: list[tuple[str, float]]
    unknown: int
    charsmap: bytes


def read_spiece(path: Path) -> SentencePieceModel:
    """Read a model file.

    Raises:
        UserError: it cannot be read, is not a SentencePiece model, or not a unigram model.
    """
    try:
        content = read_whole(path)
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
        raise UserError("is not a valid SentencePiece model", file=path, remedy="copy it again") from error
    if not pieces:
        raise UserError("the vocabulary is empty", file=path)
    if kind != _UNIGRAM:
        raise UserError("is not a unigram model, the only supported kind of SentencePiece model", file=path)
    if len(unknown) != 1:
        raise UserError(f"has {len(unknown)} unknown pieces instead of one", file=path)
    return SentencePieceModel(pieces, unknown[0], charsmap)


def _of(kind: type[bytes], value: object) -> bytes:
    if not isinstance(value, kind):
        raise TypeError(f"not {kind.__name__}")
    return value


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message: an integer, or the bytes of any other type.

    Raises:
        ValueError: the message is truncated, or has a field of an unknown wire type.
        IndexError: the message is truncated.
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
            raise ValueError("the message is truncated")
        yield key >> 3, content[at : at + size]
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return the variable-length integer at a position, and the position after it."""
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
