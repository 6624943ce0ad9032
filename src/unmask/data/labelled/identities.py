"""Identities of examples: what those with equal texts have in common.

Input: the texts of each example, such as a pair, or a question and its passage. Output: folded texts (`folding.py`),
and which are equal. Of each text few bytes are looked at, at places that depend on its length; only where these are the
same, whole texts are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from unmask.data.labelled.folding import SEPARATOR, WORD, FoldedTexts, fold_all

WORDS = 4
"""Words of `WORD` bytes of a text that its key depends on."""
_AT_A_TIME = 512
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Identities:
    """The folded texts of examples, those of an example in an order that does not depend on the example's.

    Attributes:
        texts: the folded texts, one of each example.
        keys: numbers, (examples,) uint64, that are the same for equal texts.
        is_ascii: whether all texts of each example are ASCII, (examples,) bool.
    """

    texts: FoldedTexts
    keys: np.ndarray
    is_ascii: np.ndarray

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def of(cls, examples: Iterable[Sequence[str]]) -> Identities:
        """Return the identities of examples, given the texts of each."""
        flat: list[str] = []
        counts: list[int] = []
        iterator = iter(examples)
        while some := list(islice(iterator, _AT_A_TIME)):  # the garbage collector looks at all tuples that are kept
            flat.extend(chain.from_iterable(some))
            counts.extend(map(len, some))
        is_ascii = np.fromiter(map(str.isascii, flat), bool, len(flat))
        folded = fold_all(flat, is_ascii)
        if any(count != 1 for count in set(counts)):
            texts = iter(folded)
            folded = FoldedTexts.of([SEPARATOR.join(sorted(islice(texts, count))) for count in counts])
            owners = np.repeat(np.arange(len(counts)), counts)
            is_ascii = np.bincount(owners, ~is_ascii, len(counts)) == 0
        return cls(folded, _keys(folded), is_ascii)

    def select(self, chosen: np.ndarray) -> Identities:
        """Return those of some of the examples, given their indices or a mask."""
        return Identities(self.texts.select(chosen), self.keys[chosen], self.is_ascii[chosen])

    def firsts(self) -> np.ndarray:
        """Return the index of the first example that equals each, (examples,)."""
        firsts = np.arange(len(self))
        keys = np.sort(self.keys)
        seen: dict[bytes, int] = {}
        for index in _among(self.keys, keys[1:][keys[1:] == keys[:-1]]).tolist():
            firsts[index] = seen.setdefault(self.texts[index], index)
        return firsts

    def equal(self, others: Identities) -> dict[int, int]:
        """Return the examples that are among some others, each with the index of the first of these; in order."""
        common = _among(self.keys, np.sort(others.keys))
        places: dict[bytes, int] = {}
        for index in _among(others.keys, np.sort(self.keys[common])).tolist():
            places.setdefault(others.texts[index], index)
        own = ((index, places.get(self.texts[index])) for index in common.tolist())
        return {index: place for index, place in own if place is not None}


def identities(examples: Iterable[Sequence[str]]) -> list[bytes]:
    """Return what is the same for examples with equal texts, in any order.

    Args:
        examples: the texts of each example.
    """
    return list(Identities.of(examples).texts)


def _among(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the indices of the keys that are among some values, which are sorted."""
    if not len(values):
        return np.zeros(0, np.int64)
    return np.flatnonzero(values[np.minimum(np.searchsorted(values, keys), len(values) - 1)] == keys)


def _keys(folded: FoldedTexts) -> np.ndarray:
    """Return a number of each text, (texts,) uint64, by its length and some of its words."""
    starts, stops = folded.spans()
    lengths = stops - starts
    words = np.ndarray(max(0, len(folded.content) - WORD + 1), np.dtype("<u8"), folded.content, 0, (1,))
    shift = 8 * np.maximum(0, WORD - lengths).astype(np.uint64)  # what follows a short text is not part of it
    keys = lengths.astype(np.uint64)
    for number in range(WORDS):
        word = words[starts + np.maximum(0, lengths - WORD) * number // (WORDS - 1)]
        keys = (keys ^ (keys >> np.uint64(32)) ^ (word << shift)) * _FACTOR
    return keys
