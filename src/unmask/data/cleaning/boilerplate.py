"""Boilerplate: lines that are on many pages of a host, such as menus and notices, are removed from all of them.

In: the lines and hosts of all documents. Out: which lines are removed: those on at least `min_pages` pages of a host
that are at least `min_share` of its pages. Documents without an address have no host, and keep their lines. So did
Bar-Yossef and Rajagopalan 2002 ("Template detection via data mining and its applications"), with parts of HTML in place
of lines.
"""

from __future__ import annotations

import msgspec
import numpy as np

from unmask.data.cleaning.grouping import KEPT, bounds, equal_keys, of_rows
from unmask.data.cleaning.store import Store
from unmask.data.corpus.hashes import mixed


class Boilerplate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [boilerplate].

    Attributes:
        min_pages: minimum number of pages of a host that have a line.
        min_share: minimum share of the pages of the host.
    """

    min_pages: int = 5
    min_share: float = 0.1

    def __post_init__(self) -> None:
        if self.min_pages < 2:
            raise ValueError(f"min_pages must be at least 2, not {self.min_pages}")
        if not 0 <= self.min_share <= 1:
            raise ValueError(f"min_share must be at least 0 and at most 1, not {self.min_share:g}")


BOILERPLATE = 1
"""What is known of a line that is boilerplate."""


def find_boilerplate(store: Store, dropped: np.ndarray, rule: Boilerplate, removed: np.ndarray) -> None:
    """Mark the lines that are boilerplate.

    Args:
        store: the documents.
        dropped: which documents are dropped, and do not count, (documents,).
        rule: the rule.
        removed: what is known of each line, (lines,); those that are boilerplate get `BOILERPLATE`.
    """
    rows = bounds(store, "counts")
    hosts = [np.zeros(0, np.uint64), *(np.asarray(store.column(index, "hosts")) for index in range(store.sources))]
    of_documents = np.concatenate(hosts)
    known, pages = np.unique(of_documents[dropped == KEPT], return_counts=True)

    def keys_of(index: int) -> np.ndarray:
        return np.asarray(store.column(index, "lines")) ^ mixed(of_rows(store, of_documents, index, "counts"))

    def is_chosen(index: int) -> np.ndarray:
        return of_rows(store, (dropped == KEPT) & (of_documents != 0), index, "counts")

    for equal in equal_keys(store, keys_of, is_chosen, int(rows[-1])):
        if not len(equal.rows):
            continue
        documents = np.searchsorted(rows, equal.rows, side="right") - 1
        is_other = equal.is_first | np.append(True, documents[1:] != documents[:-1])
        starts = np.flatnonzero(equal.is_first)
        with_line = np.add.reduceat(is_other.astype(np.int64), starts)
        of_host = pages[np.searchsorted(known, of_documents[documents[starts]])]
        is_boilerplate = (with_line >= rule.min_pages) & (with_line >= rule.min_share * of_host)
        removed[equal.rows[np.repeat(is_boilerplate, np.diff(starts, append=len(equal.rows)))]] = BOILERPLATE
