"""Equal and nearly equal examples: what a model is scored on should not be what it learned from.

Texts are equal here if they differ only in Unicode composition, case, spaces and punctuation. Nearly equal are those
whose folded texts have most of their n-grams of bytes in common, by the Jaccard similarity. They are found by bottom-k
MinHash sketches (Broder 1997): a held-out text is represented by its n-grams with the smallest hashes, training texts
are scanned for these, and the similarity of those that contain at least half of a sketch is computed.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple

import numpy as np

NGRAM = 8
"""Bytes of an n-gram, which is read as a number."""
SIMILAR = 0.8
"""Smallest Jaccard similarity of nearly equal texts."""
SKETCH = 16
"""Hashes of a sketch: with a text of similarity 0.8, half of them are in common in all but one of 600 cases."""
MOST_COMPARED = 2_000
"""Held-out texts whose near duplicates are sought; of more, as many, evenly spaced."""
CHUNK = 1 << 22
"""Bytes that are folded at a time."""
SCANNED = 1 << 17
"""Bytes that are scanned at a time: their hashes fit into a processor's cache."""
MOST_PAIRS = 1 << 21
"""Pairs of texts with a common n-gram that are counted at a time; n-grams in more of them tell nothing."""
FEW_LEFT_OUT = 50
"""Different characters, beside those of ASCII, up to which it is faster to remove each on its own."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_INVERSE = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
_FILTER_BITS = 20
_SEPARATOR = "\0"
_SPACES_AND_PUNCTUATION = bytes(
    code for code in range(1, 128) if not chr(code).isalnum() and chr(code) not in "$+<=>^`|~"
)
_LOWER = bytes(range(256)).lower()
_LEFT_OUT = re.compile("P.|Z.|Cc|Cf")
"""Categories of Unicode that are left out; symbols, such as emoji and plus signs, are part of a text."""


def fold(text: str) -> bytes:
    """Return a text in Unicode's composed form, without case, spaces and punctuation; what consists of them is kept."""
    return fold_all([text])[0]


def fold_all(texts: Sequence[str]) -> list[bytes]:
    """Return what `fold` returns of each text."""
    folded: list[bytes] = []
    for start, stop in _chunks([len(text) for text in texts], CHUNK):
        some = texts[start:stop]
        joined = _SEPARATOR.join(some)
        if joined.count(_SEPARATOR) >= len(some):
            some = [text.replace(_SEPARATOR, " ") for text in some]
            joined = _SEPARATOR.join(some)
        if joined.isascii():
            parts = joined.encode().translate(_LOWER, _SPACES_AND_PUNCTUATION).split(b"\0")
        else:
            joined = unicodedata.normalize("NFC", unicodedata.normalize("NFC", joined).casefold())
            others = [character for character in filter(_left_out().match, set(joined)) if not character.isascii()]
            if len(others) > FEW_LEFT_OUT:
                joined = _left_out().sub("", joined)
            else:
                for character in others:
                    joined = joined.replace(character, "")
            content = joined.encode("utf8", "surrogatepass")
            parts = content.translate(None, _SPACES_AND_PUNCTUATION).split(b"\0")
        if not all(parts):
            parts = [
                part or text.strip().encode("utf8", "surrogatepass") for part, text in zip(parts, some, strict=True)
            ]
        folded += parts
    return folded


@cache
def _left_out() -> re.Pattern[str]:
    """Return a pattern of the characters that `fold` leaves out, as ranges."""
    ranges: list[list[int]] = []
    for code in range(1, sys.maxunicode + 1):
        if _LEFT_OUT.match(unicodedata.category(chr(code))):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return re.compile("[" + "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in ranges) + "]+")


def _chunks(sizes: Sequence[int], together: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of items whose sizes add up to about `together`."""
    start = total = 0
    for index, size in enumerate(sizes):
        total += size
        if total >= together:
            yield start, index + 1
            start, total = index + 1, 0
    if start < len(sizes):
        yield start, len(sizes)


def identities(examples: Sequence[tuple[str, ...]]) -> list[bytes]:
    """Return what is the same for examples with equal texts, in any order.

    Args:
        examples: the texts of each example, such as a pair, or a question and its passage.
    """
    folds = fold_all(list(chain.from_iterable(examples)))
    if len(folds) == len(examples) and all(examples):
        return folds
    folded = iter(folds)
    return [next(folded) if len(texts) == 1 else b"\0".join(sorted(next(folded) for _ in texts)) for texts in examples]


class Overlap(NamedTuple):
    """What held-out examples have in common with training examples.

    Attributes:
        equal: the held-out examples that equal a training example, each with that example's index; in order.
        near: those that nearly equal one.
        compared: for how many of the others near duplicates were sought.
    """

    equal: dict[int, int]
    near: dict[int, int]
    compared: int


def overlap(train: Sequence[tuple[str, ...]], held: Sequence[tuple[str, ...]]) -> Overlap:
    """Find the held-out examples that are, or nearly are, training examples.

    Args:
        train, held: the texts of each example.
    """
    known, asked = identities(train), identities(held)
    places = dict(zip(reversed(known), range(len(known) - 1, -1, -1), strict=True))  # the first of equal ones
    equal = {index: places[identity] for index, identity in enumerate(asked) if identity in places}
    others = [index for index in range(len(held)) if index not in equal]
    if len(others) > MOST_COMPARED:
        others = [others[index] for index in np.linspace(0, len(others) - 1, MOST_COMPARED).astype(int)]
    near = near_duplicates(known, [asked[index] for index in others])
    return Overlap(equal, {others[index]: place for index, place in near.items()}, len(others))


def near_duplicates(train: Sequence[bytes], held: Sequence[bytes]) -> dict[int, int]:
    """Return, for each held-out text that is similar to a training text, the index of one; see `SIMILAR`.

    Texts shorter than an n-gram are similar to none.
    """
    near: dict[int, int] = {}
    sketches = _Sketches(held)
    for start, stop in _chunks([len(text) for text in train], SCANNED):
        if not sketches.size:
            break
        before = len(near)
        place, grams = -1, frozenset[bytes]()
        for row, index in sketches.candidates(train[start:stop]):
            size, text = sketches.sizes[index], train[start + row]
            if index in near or len(text) - NGRAM + 1 < SIMILAR * size:  # too short to be similar
                continue
            if place != start + row:
                place, grams = start + row, ngrams(text)
            if size >= SIMILAR * len(grams) and jaccard(grams, ngrams(held[index])) >= SIMILAR:
                near[index] = place
        if len(near) > before:
            sketches.forget(near)
    return dict(sorted(near.items()))


def similarity(text: bytes, other: bytes) -> float:
    """Return the Jaccard similarity of the n-grams of two texts; 0 if one has none."""
    return jaccard(ngrams(text), ngrams(other))


def jaccard(first: frozenset[bytes], second: frozenset[bytes]) -> float:
    """Return the Jaccard similarity of two sets; 0 if both are empty."""
    common = len(first & second)
    return common / max(1, len(first) + len(second) - common)


def ngrams(text: bytes) -> frozenset[bytes]:
    """Return the n-grams of a text; see `NGRAM`."""
    return frozenset(text[start : start + NGRAM] for start in range(len(text) - NGRAM + 1))


class _Sketches:
    """The sketches of held-out texts.

    Args:
        texts: the texts.

    Attributes:
        hashes, owners: the hashes in order, each with the index of its text; a hash may occur several times.
        sizes: the number of different n-grams of each text.
    """

    def __init__(self, texts: Sequence[bytes]) -> None:
        hashes_of = [np.unique(_mixed(_products(text))) for text in texts]
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
        self._filter = np.zeros(1 << _FILTER_BITS, bool)
        self._filter[_bucket(_unmixed(hashes))] = True

    def forget(self, owners: Iterable[int]) -> None:
        """Leave out the sketches of some texts."""
        left = ~np.isin(self.owners, list(owners))
        self._take(self.hashes[left], self.owners[left])

    def candidates(self, texts: Sequence[bytes]) -> list[tuple[int, int]]:
        """Return the texts that contain at least half of a sketch, each with the index of the sketch's text."""
        products = _products(_SEPARATOR.encode().join(texts))
        places, first, number = self._find(products)
        while number.sum() > MOST_PAIRS:
            self._leave_out_common(self.hashes[first], number)
            places, first, number = self._find(products)
        ends = np.cumsum([len(text) + 1 for text in texts])
        rows = np.searchsorted(ends, places, "right")
        _, once = np.unique(rows * (self.size + 1) + first, return_index=True)  # a hash counts once in a text
        rows, first, number = rows[once], first[once], number[once]
        spread = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number)
        at = np.repeat(first, number) + spread
        pairs, counts = _counted(np.repeat(rows, number) * len(self.needed) + self.owners[at])
        rows, owners = np.divmod(pairs, max(1, len(self.needed)))
        enough = counts >= self.needed[owners]
        return list(zip(rows[enough].tolist(), owners[enough].tolist(), strict=True))

    def _find(self, products: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return where hashes are those of sketches, and the first of these and their number at each place."""
        places = np.flatnonzero(self._filter[_bucket(products)])
        hashes = _mixed(products[places])
        index = np.minimum(np.searchsorted(self.hashes, hashes), self.size - 1)
        hit = self.hashes[index] == hashes
        first = index[hit]
        return places[hit], first, np.searchsorted(self.hashes, hashes[hit], "right") - first

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


def _products(text: bytes) -> np.ndarray:
    """Return a number of the n-gram at each position of a text, (positions,) uint64, whose upper bits are mixed."""
    if len(text) < NGRAM:
        return np.zeros(0, np.uint64)
    return np.ndarray(len(text) - NGRAM + 1, np.dtype("<u8"), text, 0, (1,)) * _FACTOR


def _bucket(products: np.ndarray) -> np.ndarray:
    """Return the place of each n-gram in the filter."""
    return (products >> np.uint64(64 - _FILTER_BITS)).view(np.int64)


def _mixed(products: np.ndarray) -> np.ndarray:
    """Return hashes of n-grams, whose order is random."""
    return (products ^ (products >> np.uint64(32))) * _FACTOR


def _unmixed(hashes: np.ndarray) -> np.ndarray:
    """Return what `_mixed` made hashes of."""
    products = hashes * _INVERSE
    return products ^ (products >> np.uint64(32))
