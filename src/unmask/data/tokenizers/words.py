"""Word boundaries in a sequence of tokens, for masking of whole words, n-grams and spans.

WordPiece marks the tokens that continue a word (`##`). Byte-level BPE marks only spaces, so here a word also begins
wherever a letter or digit is adjacent to another kind of character, and at each character of a script that is written
without spaces. Otherwise "end." would be a single word, and so would a whole Chinese sentence. Words are never split: a
token that begins within a character or within a run of letters and digits continues the word, and so do accents and
other marks, and invisible characters such as soft hyphens and joiners.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

_LETTER, _OTHER, _UNSPACED, _SPACE, _SPECIAL = range(5)
_RANGES = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0xA4CF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
"""Code points of Thai and Lao; Myanmar; Khmer; Chinese and Japanese; and further blocks of Chinese characters."""
_PUNCTUATION = (0x3000, 0x303F)
"""Code points of punctuation within these ranges."""


class WordStarts:
    """Finds the tokens with which words begin.

    Args:
        tokens: the vocabulary in the order of ids, each token as the bytes that it represents; None for special tokens.
    """

    def __init__(self, tokens: Iterable[bytes | None]) -> None:
        found = [(True, _SPECIAL, _SPECIAL) if token is None else _ends(token) for token in tokens]
        self._apart, self._first, self._last = (np.array(column) for column in zip(*found, strict=True))

    def __call__(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each token of a text whether a word begins with it."""
        first, last = self._first[ids], self._last[ids]
        # tokens within a character have the kind of the token that began it
        known = np.maximum.accumulate(np.where(last >= 0, np.arange(len(ids)), 0))
        before = np.concatenate([[_SPECIAL], last[known][:-1]])[: len(ids)]
        differs = (first != before) | (first == _UNSPACED)
        return self._apart[ids] | ((first >= 0) & (before != _SPACE) & differs)


def _ends(token: bytes) -> tuple[bool, int, int]:
    """Return whether a token begins with a space, and the kinds of its first and its last character.

    The kind is -1 for a character that continues the one before it, or whose first byte is not in this token.
    """
    text = token.decode(errors="surrogateescape")
    body = text.lstrip()
    if not body:
        return True, _SPACE, _SPACE  # the word continues with the next token
    last = next((index for index in range(-1, -len(body) - 1, -1) if not _continues(body[index])), -1)
    return body != text, _kind(body, 0), _kind(body, last)


def _continues(character: str) -> bool:
    """Return whether a character, such as a mark or a format character, belongs to the one before it."""
    category = unicodedata.category(character)
    return category.startswith("M") or category == "Cf"


def _kind(text: str, index: int) -> int:
    """Return the kind of a character, of which some bytes may be missing; -1: the kind of the preceding character."""
    if _continues(text[index]):
        return -1
    code = ord(text[index])
    if 0xDC80 <= code <= 0xDCFF:  # a byte of an incomplete character
        start = text[:1] if index == 0 else text
        byte = next((ord(one) - 0xDC00 for one in reversed(start) if 0xDCC0 <= ord(one) <= 0xDCFF), None)
        return -1 if byte is None else _of_first_byte(byte)
    if any(low <= code <= high for low, high in _RANGES) and not _PUNCTUATION[0] <= code <= _PUNCTUATION[1]:
        return _UNSPACED
    return _LETTER if text[index].isalnum() else _OTHER


def _of_first_byte(byte: int) -> int:
    """Guess the kind of a character from the first byte of its UTF-8: 0xE3 to 0xE9 begin nearly only Chinese ones."""
    return _UNSPACED if 0xE3 <= byte <= 0xE9 else _LETTER
