"""Equal keys among the documents of a store, in bounded memory.

Keys are sorted `BLOCK` at a time, each time those with the same remainder, which are read from the disk again for each
block; beside these there are 8 bytes for each document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from unmask.data.cleaning.store import Store

BLOCK = 1 << 22
"""Number of keys that are sorted at a time."""
KEPT = 0
"""What is known of a document, or of a line, that stays."""


class EqualKeys(NamedTuple):
    """Keys in order, equal ones in the order of their rows.

    Attributes:
        keys: the keys, (rows,).
        rows: their numbers over all sources, (rows,).
        is_first: which of them are the first ones that have their key, (rows,).
    """

    keys: np.ndarray
    rows: np.ndarray
    is_first: np.ndarray

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Return for each key a value of the first one that equals it, given the values of all."""
        if not len(values):
            return values
        return values[np.maximum.accumulate(np.where(self.is_first, np.arange(len(values)), 0))]


def equal_keys(
    store: Store, keys_of: Callable[[int], np.ndarray], is_chosen: Callable[[int], np.ndarray], total: int
) -> Iterator[EqualKeys]:
    """Yield the keys of all sources, those with the same remainder at a time.

    Args:
        store: the documents.
        keys_of: returns the keys of a source, (rows,) uint64.
        is_chosen: returns which of them are compared, (rows,) bool.
        total: number of rows of all sources.
    """
    blocks = 1 + total // BLOCK
    for block in range(blocks):
        keys, rows, start = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)], 0
        for index in range(store.sources):
            values = np.asarray(keys_of(index))
            chosen = np.flatnonzero((values % np.uint64(blocks) == block) & is_chosen(index))
            keys.append(values[chosen])
            rows.append(chosen + start)
            start += len(values)
        together = np.concatenate(keys)
        order = np.argsort(together, kind="stable")
        ordered = together[order]
        is_first = np.ones(len(ordered), bool)
        is_first[1:] = ordered[1:] != ordered[:-1]
        yield EqualKeys(ordered, np.concatenate(rows)[order], is_first)


def bounds(store: Store, name: str) -> np.ndarray:
    """Return where the rows of each document start, and the end of the last, (documents + 1,), given their numbers."""
    counts = [np.zeros(1, np.int64), *(np.asarray(store.column(index, name)) for index in range(store.sources))]
    return np.cumsum(np.concatenate(counts))


def of_rows(store: Store, values: np.ndarray, index: int, name: str) -> np.ndarray:
    """Return for each row of a source the value of its document, given those of all and the column of their numbers."""
    return np.repeat(values[store.starts[index] : store.starts[index + 1]], np.asarray(store.column(index, name)))
