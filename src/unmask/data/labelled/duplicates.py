"""Equal and nearly equal examples: what a model is scored on should not be what it learned from.

Texts are equal here if they differ only in Unicode composition, case, spaces and punctuation. Nearly equal are those
whose folded texts have most of their n-grams of bytes in common, by the Jaccard similarity. They are found by bottom-k
MinHash sketches (Broder 1997): a held-out text is represented by its n-grams with the smallest hashes, training texts
are scanned for these, and the similarity of those that contain at least half of a sketch is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from unmask.data.labelled.folding import FoldedTexts
from unmask.data.labelled.identities import FACTOR, Identities, mixed

NGRAM = 8
"""Bytes of an n-gram, which is read as a number."""
SIMILAR = 0.8
"""Smallest Jaccard similarity of nearly equal texts."""
SKETCH = 16
"""Hashes of a sketch: with a text of similarity 0.8, half of them are in common in all but one of 600 cases."""
MOST_COMPARED = 2_000
"""Held-out texts whose near duplicates are sought; of more, as many, evenly spaced."""
MOST_SEARCHED = 100_000
"""Training texts that are searched for near duplicates where an estimate is enough."""
FEW = 8
"""Texts that are compared pair by pair."""
FORGOTTEN = 0.1
"""Share of the sketches that are left out together, once their texts are known to have a near duplicate."""
SCANNED = 1 << 17
"""Bytes that are scanned at a time: their hashes fit into a processor's cache."""
MOST_PAIRS = 1 << 21
"""Pairs of texts with a common n-gram that are counted at a time; n-grams in more of them tell nothing."""
_INVERSE = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
_FILTER_BITS = 20


class Overlap(NamedTuple):
    """What held-out examples have in common with training examples.

    Attributes:
        equal: the held-out examples that equal a training example, each with that example's index; in order.
        near: those that nearly equal one.
        compared: for how many of the others near duplicates were sought.
        searched: among how many training examples.
    """

    equal: dict[int, int]
    near: dict[int, int]
    compared: int
    searched: int


def overlap(train: Identities, held: Identities, most: int | None = None) -> Overlap:
    """Find the held-out examples that are, or nearly are, training examples.

    Args:
        train, held: what is compared of each example.
        most: number of training examples among which near duplicates are sought, a random sample of more: those whose
            positions have the smallest hashes; None: all. Equal examples are sought among all.
    """
    sample = np.arange(len(train))
    if most is not None and len(train) > most:
        hashes = mixed(sample.astype(np.uint64) * FACTOR)
        sample = np.sort(np.argpartition(hashes, most)[:most])
    equal = held.equal(train)
    others = np.setdiff1d(np.arange(len(held)), list(equal), assume_unique=True)
    if len(others) > MOST_COMPARED:
        others = others[np.linspace(0, len(others) - 1, MOST_COMPARED).astype(int)]
    near = near_duplicates(train.select(sample).folded(), list(held.select(others).folded()))
    places = {int(others[index]): int(sample[place]) for index, place in near.items()}
    return Overlap(equal, places, len(others), len(sample))


def near_duplicates(train: FoldedTexts, held: Sequence[bytes]) -> dict[int, int]:
    """Return, for each held-out text that is similar to a training text, the index of one; see `SIMILAR`.

    Texts shorter than an n-gram are similar to none.
    """
    near: dict[int, int] = {}
    sketches, left = _Sketches(held), len(held)  # those of so many texts
    for start, stop in train.blocks(SCANNED):
        if not sketches.size:
            break
        place, text, grams = -1, b"", frozenset[int]()
        for row, index in sketches.candidates(train, start, stop):
            if index in near:
                continue
            if place != row:
                place, text, grams = row, train[row], frozenset()
            size = sketches.sizes[index]
            if len(text) - NGRAM + 1 < SIMILAR * size:  # too short to be similar
                continue
            grams = grams or ngrams(text)
            if size >= SIMILAR * len(grams) and jaccard(grams, ngrams(held[index])) >= SIMILAR:
                near[index] = place
        if len(near) - (len(held) - left) > FORGOTTEN * left:  # each time all tables are made again
            sketches.forget(near)
            left = len(held) - len(near)
    return dict(sorted(near.items()))


def distinct(texts: Sequence[bytes]) -> list[int]:
    """Return indices of folded texts, of which no two are equal or nearly equal; see `SIMILAR`.

    Every other text equals, or nearly equals, one before it.
    """
    first = sorted({text: index for index, text in reversed([*enumerate(texts)])}.values())
    return [first[index] for index in _distinct([texts[index] for index in first])]


def _distinct(texts: Sequence[bytes]) -> list[int]:
    """Return what `distinct` returns, for texts that differ: halves are compared with each other."""
    if len(texts) <= FEW:
        chosen: list[int] = []
        for index, text in enumerate(texts):
            if all(similarity(texts[earlier], text) < SIMILAR for earlier in chosen):
                chosen.append(index)
        return chosen
    half = len(texts) // 2
    before = _distinct(texts[:half])
    after = [half + index for index in _distinct(texts[half:])]
    near = near_duplicates(FoldedTexts.of([texts[index] for index in before]), [texts[index] for index in after])
    return before + [index for number, index in enumerate(after) if number not in near]


def similarity(text: bytes, other: bytes) -> float:
    """Return the Jaccard similarity of the n-grams of two texts; 0 if one has none."""
    return jaccard(ngrams(text), ngrams(other))


def jaccard(first: frozenset[int], second: frozenset[int]) -> float:
    """Return the Jaccard similarity of two sets; 0 if both are empty."""
    common = len(first & second)
    return common / max(1, len(first) + len(second) - common)


def ngrams(text: bytes) -> frozenset[int]:
    """Return the n-grams of a text, as numbers; see `NGRAM`."""
    return frozenset(_words(text, 0, len(text) - NGRAM + 1).tolist())


def ngram_hashes(text: bytes) -> np.ndarray:
    """Return a hash of the n-gram at each position, (positions,) uint64, whose order is random."""
    return mixed(_products(text, 0, len(text) - NGRAM + 1))


class _Sketches:
    """The sketches of held-out texts.

    Args:
        texts: the texts.

    Attributes:
        hashes, owners: the hashes in order, each with the index of its text; a hash may occur several times.
        sizes: the number of different n-grams of each text.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        every = [np.sort(ngram_hashes(text)) for text in texts]
        hashes_of = [hashes[np.append(hashes[:-1] != hashes[1:], True)[: len(hashes)]] for hashes in every]
        self.sizes = [len(hashes) for hashes in hashes_of]
        each = [hashes[:SKETCH] for hashes in hashes_of]
        owners = np.repeat(np.arange(len(texts)), [len(hashes) for hashes in each])
        hashes = np.concatenate(each) if each else np.zeros(0, np.uint64)
        order = np.argsort(hashes, kind="stable")
        self._take(hashes[order], owners[order])

    @property
    def size(self) -> int:
        """How many hashes there are."""
        return len(self.hashes)

    def _take(self, hashes: np.ndarray, owners: np.ndarray) -> None:
        self.hashes, self.owners = hashes, owners
        self.needed = (np.bincount(owners) + 1) // 2 if len(owners) else np.zeros(0, int)
        self._filter, self._second = np.zeros((2, 1 << _FILTER_BITS), bool)
        self._filter[_bucket(_unmixed(hashes))] = True
        self._second[_second_bucket(hashes)] = True

    def forget(self, owners: Iterable[int]) -> None:
        """Leave out the sketches of some texts."""
        left = ~np.isin(self.owners, list(owners))
        self._take(self.hashes[left], self.owners[left])

    def candidates(self, texts: FoldedTexts, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the texts that contain at least half of a sketch, each with the index of the sketch's text.

        Args:
            texts: the texts.
            start, stop: the part of their content to scan.
        """
        rows, first, number = self._find(texts, start, stop)
        while number.sum() > MOST_PAIRS:
            self._leave_out_common(self.hashes[first], number)
            rows, first, number = self._find(texts, start, stop)
        _, once = np.unique(rows * (self.size + 1) + first, return_index=True)  # a hash counts once in a text
        rows, first, number = rows[once], first[once], number[once]
        spread = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
        at = np.repeat(first, number) + spread
        pairs, counts = _counted(np.repeat(rows, number) * len(self.needed) + self.owners[at])
        rows, owners = np.divmod(pairs, max(1, len(self.needed)))
        enough = counts >= self.needed[owners]
        return list(zip(rows[enough].tolist(), owners[enough].tolist(), strict=True))

    def _find(self, texts: FoldedTexts, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return which texts contain hashes of sketches, and the first of these and their number at each place."""
        products = _products(texts.content, start, min(stop, len(texts.content) - NGRAM + 1))
        places = np.flatnonzero(self._filter.take(_bucket(products)))
        hashes = mixed(products[places])
        may_hit = self._second[_second_bucket(hashes)]  # searching is slower than another look at a table
        places, hashes = places[may_hit], hashes[may_hit]
        rows = texts.texts[np.searchsorted(texts.ends, start + places)]
        index = np.minimum(np.searchsorted(self.hashes, hashes), self.size - 1)
        hit = (self.hashes[index] == hashes) & (rows >= 0)
        first = index[hit]
        return rows[hit], first, np.searchsorted(self.hashes, hashes[hit], "right") - first

    def _leave_out_common(self, hits: np.ndarray, number: np.ndarray) -> None:
        """Leave out the hash with the most pairs, and those with at least half as many."""
        values, where = np.unique(hits, return_inverse=True)
        pairs = np.bincount(where, number)
        left = ~np.isin(self.hashes, values[2 * pairs >= pairs.max()])
        self._take(self.hashes[left], self.owners[left])


def _counted(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different ones of numbers from 0, in order, and how often each occurs."""
    if numbers.size == 0 or numbers.max() > 8 * numbers.size:
        return np.unique(numbers, return_counts=True)
    counts = np.bincount(numbers)
    different = np.flatnonzero(counts)
    return different, counts[different]


def _words(content: bytes, start: int, stop: int) -> np.ndarray:
    """Return the n-gram at each of some positions as a number, (positions,) uint64."""
    return np.ndarray(max(0, stop - start), np.dtype("<u8"), content, start, (1,))


def _products(content: bytes, start: int, stop: int) -> np.ndarray:
    """Return a number of the n-gram at each position, (positions,) uint64, whose upper bits are mixed."""
    return _words(content, start, stop) * FACTOR


def _bucket(products: np.ndarray) -> np.ndarray:
    """Return the place of each n-gram in the filter."""
    return (products >> np.uint64(64 - _FILTER_BITS)).view(np.int64)


def _second_bucket(hashes: np.ndarray) -> np.ndarray:
    """Return the place of each hash in the second filter."""
    return (hashes & np.uint64((1 << _FILTER_BITS) - 1)).view(np.int64)


def _unmixed(hashes: np.ndarray) -> np.ndarray:
    """Return what `mixed` made hashes of."""
    products = hashes * _INVERSE
    return products ^ (products >> np.uint64(32))
