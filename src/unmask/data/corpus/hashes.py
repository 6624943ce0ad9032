"""Hashes of parts of sequences, and counts of them in bounded memory.

Input: a sequence of hashes of 64 bits, one for each token or word. Output: a hash for each window or segment of it, by
a polynomial rolling hash modulo 2^64 (Karp and Rabin 1987), computed for all of them at once from sums of products;
and how often each hash occurs, of any number of them, each read once.

Two ways to bound the memory: `HashSample` keeps those whose hashes are smallest, with exact counts, by which shares of
all are estimated without bias (distinct sampling: Gibbons 2001); `FrequentHashes` keeps those that are frequent, with
counts that lack at most a known number (lossy counting: Manku and Motwani 2002).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
MOST = 1 << 20
"""Number of different hashes whose counts are kept; with what is waiting to be counted they take about 100 MB."""
_FACTOR = 0x9E3779B97F4A7C15
_INVERSE = pow(_FACTOR, -1, 1 << 64)
_LARGEST = (1 << 64) - 1


def mixed(values: npt.NDArray[np.unsignedinteger]) -> Hashes:
    """Return hashes of numbers, in which each bit depends on all of theirs (splitmix64's finalizer)."""
    hashes = values.astype(np.uint64) + np.uint64(_FACTOR)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        hashes ^= hashes >> np.uint64(shift)
        hashes *= np.uint64(factor)
    return hashes ^ (hashes >> np.uint64(31))


def segment_hashes(hashes: Hashes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Hashes:
    """Return a hash of each segment of a sequence, (segments,), equal for segments with the same content.

    Args:
        hashes: a hash of each element, (elements,).
        starts, ends: where segments start and end (exclusive), (segments,).
    """
    sums = np.zeros(len(hashes) + 1, np.uint64)
    np.cumsum(hashes * _powers(_FACTOR, len(hashes)), out=sums[1:])
    content = (sums[ends] - sums[starts]) * _powers(_INVERSE, len(hashes) + 1)[starts]
    return mixed(content + (ends - starts).astype(np.uint64))


def window_starts(bounds: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.int64]:
    """Return the starts of all windows that are inside a segment, given the bounds of consecutive segments."""
    starts = np.arange(int(bounds[0]), int(bounds[-1]))
    return starts[starts + width <= np.repeat(bounds[1:], np.diff(bounds))]


def _powers(factor: int, count: int) -> Hashes:
    """Return the powers of a number modulo 2^64, from that of 0 on."""
    powers = np.full(count, factor, np.uint64)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.uint64)


class _HashCounts:
    """Counts of hashes; see the module.

    Args:
        most: number of different hashes that are kept.

    Attributes:
        total: number of hashes that were added.
    """

    def __init__(self, most: int = MOST) -> None:
        self.total = 0
        self._most = most
        self._keys, self._counts, self._places = np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._waiting: list[tuple[Hashes, Places]] = []
        self._num_waiting = 0

    def add(self, hashes: Hashes, places: Places) -> None:
        """Count hashes, each with the place where it occurs."""
        self.total += len(hashes)
        is_chosen = self._is_chosen(hashes)
        self._waiting.append((hashes[is_chosen], places[is_chosen]))
        self._num_waiting += len(self._waiting[-1][0])
        if self._num_waiting >= self._most:
            self._merge()

    def _merge(self) -> None:
        """Count what is waiting."""
        if not self._num_waiting:
            return
        keys = np.concatenate([self._keys, *(hashes for hashes, _ in self._waiting)])
        places = np.concatenate([self._places, *(each for _, each in self._waiting)])
        counts = np.concatenate([self._counts, np.ones(len(keys) - len(self._counts), np.int64)])
        self._waiting, self._num_waiting = [], 0
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        self._keys, self._places = keys[starts], places[order[starts]]
        self._counts = np.add.reduceat(counts[order], starts)
        if len(self._keys) > self._most:
            self._shrink()

    def _keep(self, is_kept: npt.NDArray[np.bool_]) -> None:
        self._keys, self._counts, self._places = self._keys[is_kept], self._counts[is_kept], self._places[is_kept]

    def _is_chosen(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return which of new hashes are to be counted."""
        return np.ones(len(hashes), bool)

    def _shrink(self) -> None:
        """Forget some hashes, so that at most `most` are left."""
        raise NotImplementedError

    def most_frequent(self, count: int) -> list[tuple[int, int]]:
        """Return how often the most frequent hashes occur, and a place of each; equally frequent ones by place."""
        self._merge()
        order = np.lexsort((self._places, -self._counts))[:count]
        return list(zip(self._counts[order].tolist(), self._places[order].tolist(), strict=True))


class HashSample(_HashCounts):
    """Counts of a sample of the different hashes, chosen by their values; see the module.

    Attributes:
        share: share of the different hashes that are in the sample; 1 as long as there are at most `most`.
    """

    _limit = _LARGEST

    @property
    def share(self) -> float:
        """See above."""
        self._merge()
        return (self._limit + 1) / (_LARGEST + 1)

    @property
    def repeated(self) -> float:
        """Share of all hashes that occurred before."""
        self._merge()
        counted = int(self._counts.sum())
        return 1 - len(self._counts) / counted if counted else 0.0

    def _is_chosen(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        return hashes <= np.uint64(self._limit)

    def _shrink(self) -> None:
        while len(self._keys) > self._most:
            self._limit >>= 1
            self._keep(self._is_chosen(self._keys))


class FrequentHashes(_HashCounts):
    """Counts of the frequent hashes; see the module.

    Attributes:
        lacking: by how much a count may be too small; hashes that occur at most so often may be missing.
    """

    lacking = 0

    def _shrink(self) -> None:
        smallest = int(np.partition(self._counts, -(self._most // 2))[-(self._most // 2)])
        self.lacking += smallest
        self._keep(self._counts > smallest)
