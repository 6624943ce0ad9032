"""Identities of examples: what those with equal texts have in common.

Input: the texts of each example, such as a pair, or a question and its passage. Output: which are equal. Only the start
of each text is folded (`folding.py`); only where the folded starts are the same, whole texts are folded and compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np

from unmask.data.labelled.folding import SEPARATOR, WORD, FoldedTexts, fold_all, fold_letters

START = 48
"""Characters, about, of the start of a text."""
WORDS = 4
"""Words of `WORD` bytes of a folded text that its key depends on, from its start."""
_SIZE = WORDS * WORD
_AT_A_TIME = 512
_ASCII = re.compile(r"[\x00-\x7f]")
FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""What numbers are multiplied by so that their upper bits are mixed: 2**64 divided by the golden ratio."""


@dataclass(frozen=True)
class Identities:
    """Examples that are compared by their texts.

    Attributes:
        texts: texts of these and other examples, as they are.
        starts: the index of the first text of each example, (examples,).
        counts: the number of its texts, (examples,).
        keys: numbers, (examples,) uint64, that are the same for equal examples.
        is_ascii: whether all texts of each example are ASCII, (examples,) bool.
    """

    texts: Sequence[str]
    starts: np.ndarray
    counts: np.ndarray
    keys: np.ndarray
    is_ascii: np.ndarray

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def of(cls, examples: Iterable[Sequence[str]]) -> Identities:
        """Return the identities of examples, given the texts of each."""
        flat: list[str] = []
        beginnings: list[str] = []
        flags: list[bool] = []
        numbers: list[int] = []
        iterator = iter(examples)
        while some := list(islice(iterator, _AT_A_TIME)):  # while the texts are in a processor's cache
            texts = list(chain.from_iterable(some))
            ascii_of = list(map(str.isascii, texts))
            pairs = zip(texts, ascii_of, strict=True)
            beginnings += [text[:START] if ascii_ else _beginning(text) for text, ascii_ in pairs]
            flat += texts
            flags += ascii_of
            numbers += map(len, some)
        counts, is_ascii = np.array(numbers, np.int64), np.array(flags, bool)
        keys = _keys(flat, beginnings, is_ascii)
        stops = np.cumsum(counts)
        starts = stops - counts
        if (counts != 1).any():  # sums do not depend on the order
            sums, others = np.append(np.uint64(0), np.cumsum(keys)), np.append(0, np.cumsum(~is_ascii))
            keys = sums[stops] - sums[starts]
            is_ascii = others[stops] == others[starts]
        return cls(flat, starts, counts, keys, is_ascii)

    def select(self, chosen: np.ndarray) -> Identities:
        """Return those of some of the examples, given their indices or a mask."""
        parts = {name: getattr(self, name)[chosen] for name in ("starts", "counts", "keys", "is_ascii")}
        return replace(self, **parts)

    def folded(self) -> FoldedTexts:
        """Return the folded texts, one of each example: its texts in an order that does not depend on the example's."""
        if (self.counts == 1).all():
            return fold_all([self.texts[start] for start in self.starts.tolist()], self.is_ascii)
        spans = zip(self.starts.tolist(), (self.starts + self.counts).tolist(), strict=True)
        texts = iter(fold_all([text for start, stop in spans for text in self.texts[start:stop]]))
        return FoldedTexts.of([SEPARATOR.join(sorted(islice(texts, count))) for count in self.counts.tolist()])

    def firsts(self) -> np.ndarray:
        """Return the index of the first example that equals each, (examples,)."""
        firsts = np.arange(len(self))
        keys = np.sort(self.keys)
        seen: dict[bytes, int] = {}
        for index, text in self._folded(_among(self.keys, keys[1:][keys[1:] == keys[:-1]])):
            firsts[index] = seen.setdefault(text, index)
        return firsts

    def equal(self, others: Identities) -> dict[int, int]:
        """Return the examples that are among some others, each with the index of the first of these; in order."""
        common = _among(self.keys, np.sort(others.keys))
        places: dict[bytes, int] = {}
        for index, text in others._folded(_among(others.keys, np.sort(self.keys[common]))):
            places.setdefault(text, index)
        return {index: places[text] for index, text in self._folded(common) if text in places}

    def _folded(self, indices: np.ndarray) -> Iterator[tuple[int, bytes]]:
        """Yield some of the examples, each with its folded text."""
        yield from zip(indices.tolist(), self.select(indices).folded(), strict=True)


def identities(examples: Iterable[Sequence[str]]) -> list[bytes]:
    """Return what is the same for examples with equal texts, in any order.

    Args:
        examples: the texts of each example.
    """
    return list(Identities.of(examples).folded())


def _among(keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the indices of the keys that are among some values, which are sorted."""
    if not len(values):
        return np.zeros(0, np.int64)
    return np.flatnonzero(values[np.minimum(np.searchsorted(values, keys), len(values) - 1)] == keys)


def _beginning(text: str) -> str:
    """Return the start of a text, up to an ASCII character; see `fold_letters`."""
    after = _ASCII.search(text, START)
    return text[: after.start()] if after else text


def _keys(texts: Sequence[str], beginnings: Sequence[str], is_ascii: np.ndarray) -> np.ndarray:
    """Return a number of each text, (texts,) uint64, by the first `WORDS` words of what it is folded to."""
    is_ascii = is_ascii.copy()
    others = np.flatnonzero(~is_ascii)
    is_ascii[others] = [beginnings[index].isascii() for index in others.tolist()]
    folded = fold_letters(beginnings, is_ascii)
    starts, stops = folded.spans()
    content = folded.content + bytes(_SIZE)
    keys = _hashes(np.ndarray((len(content) - _SIZE + 1, WORDS), "<u8", content, 0, (1, WORD))[starts])
    short = np.flatnonzero(stops - starts < _SIZE)  # there may be more in the whole text
    whole = fold_all([texts[index] for index in short.tolist()])
    padded = np.array([text[:_SIZE] for text in whole], f"S{_SIZE}")
    keys[short] = _hashes(padded.view("<u8").reshape(-1, WORDS))
    return keys


def _hashes(words: np.ndarray) -> np.ndarray:
    """Return a number of each row of words, (rows,) uint64."""
    keys = np.zeros(len(words), np.uint64)
    for column in words.T:
        keys = mixed(keys ^ column)
    return keys


def mixed(keys: np.ndarray) -> np.ndarray:
    """Return hashes of numbers, whose order is random."""
    return (keys ^ (keys >> np.uint64(32))) * FACTOR
