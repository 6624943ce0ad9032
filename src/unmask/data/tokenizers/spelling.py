"""The characters of words, as ELMo reads them: the bytes of their UTF-8 between marks (bilm-tf, `bilm/data.py`)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = range(256, 261)
"""Ids beside the 256 bytes."""
CHARACTERS = 261
LONGEST = 50
"""Number of ids of a word, the marks of its begin and its end among them; the bytes of longer words are cut."""

Spelling = npt.NDArray[np.int16]


def spell(content: bytes | list[int]) -> Spelling:
    """Return the ids of a word, (`LONGEST`,).

    Args:
        content: its bytes, or [BEGIN_SENTENCE] or [END_SENTENCE].
    """
    ids = np.full(LONGEST, PADDING, np.int16)
    kept = content[: LONGEST - 2]
    ids[0], ids[1 : len(kept) + 1], ids[len(kept) + 1] = BEGIN_WORD, list(kept), END_WORD
    return ids


def is_cut(word: str) -> bool:
    """Return whether a word has more bytes than are read."""
    return len(word) > (LONGEST - 2) // 4 and len(word.encode()) > LONGEST - 2
