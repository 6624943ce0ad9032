"""Where words begin in a sequence of pieces: what whole words, n-grams and spans to be hidden are made of.

WordPiece marks the pieces that go on a word (`##`). Byte-level BPE marks spaces only: there a word also begins wherever
a letter or digit meets something else, and at each character of a script that is written without spaces. Otherwise
"end." would be one word, and a whole Chinese sentence too. No word is split by this: what begins within a character or
within a run of letters and digits goes on, and so do accents and other marks, and what is not seen, such as soft
hyphens and joiners.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

_LETTER, _OTHER, _UNSPACED, _SPACE, _SPECIAL = range(5)
_RANGES = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0xA4CF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
"""Thai and Lao, Myanmar, Khmer, Chinese and Japanese, and what of Chinese lies elsewhere."""
_PUNCTUATION = (0x3000, 0x303F)
"""Punctuation that lies among these."""


class WordStarts:
    """Tells where words begin.

    Args:
        pieces: of the vocabulary in the order of ids, as the bytes that they stand for; None for special tokens.
    """

    def __init__(self, pieces: Iterable[bytes | None]) -> None:
        found = [(True, _SPECIAL, _SPECIAL) if piece is None else _ends(piece) for piece in pieces]
        self._apart, self._first, self._last = (np.array(column) for column in zip(*found, strict=True))

    def __call__(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Say of each piece of a text whether a word begins with it."""
        first, last = self._first[ids], self._last[ids]
        known = np.maximum.accumulate(np.where(last >= 0, np.arange(len(ids)), 0))  # pieces within a character are of
        before = np.concatenate([[_SPECIAL], last[known][:-1]])[: len(ids)]  # the kind of what began it
        differs = (first != before) | (first == _UNSPACED)
        return self._apart[ids] | ((first >= 0) & (before != _SPACE) & differs)


def _ends(piece: bytes) -> tuple[bool, int, int]:
    """Return whether a piece has a space before it, and the kinds of its first and its last character.

    A kind is -1 of a character that goes on, or of which the first byte is not in this piece.
    """
    text = piece.decode(errors="surrogateescape")
    body = text.lstrip()
    if not body:
        return True, _SPACE, _SPACE  # the word goes on with what follows
    last = next((place for place in range(-1, -len(body) - 1, -1) if not _goes_on(body[place])), -1)
    return body != text, _kind(body, 0), _kind(body, last)


def _goes_on(character: str) -> bool:
    """Say whether a character belongs to the one before it: marks, and format characters."""
    category = unicodedata.category(character)
    return category.startswith("M") or category == "Cf"


def _kind(text: str, place: int) -> int:
    """Return the kind of a character, of which only some bytes may be there; -1: that of what stands before it."""
    if _goes_on(text[place]):
        return -1
    code = ord(text[place])
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no character
        begun = text[:1] if place == 0 else text
        byte = next((ord(one) - 0xDC00 for one in reversed(begun) if 0xDCC0 <= ord(one) <= 0xDCFF), None)
        return -1 if byte is None else _of_first_byte(byte)
    if any(low <= code <= high for low, high in _RANGES) and not _PUNCTUATION[0] <= code <= _PUNCTUATION[1]:
        return _UNSPACED
    return _LETTER if text[place].isalnum() else _OTHER


def _of_first_byte(byte: int) -> int:
    """Guess the kind of a character from the first byte of its UTF-8: from 0xE3 to 0xE9 they are nearly all Chinese."""
    return _UNSPACED if 0xE3 <= byte <= 0xE9 else _LETTER
