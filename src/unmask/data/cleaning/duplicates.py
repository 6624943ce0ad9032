"""Duplicates among documents: equal ones, nearly equal ones, lines and passages that are in several, and boilerplate.

Input: the signatures of all documents (store.py). Output: which documents are dropped, and which lines. Of duplicates,
the first document stays, and of lines the first occurrence, in the order of the files: so the result depends on the
text alone.

Equal are documents whose folded texts are. Documents with a band in common may be nearly equal: their similarity is
computed from their texts, so that none is dropped by chance. Nearly equal documents are grouped, also by way of others
(connected components, as in Lee et al. 2022, arXiv 2107.06499), and one of each group stays.

Passages (`store.passage_keys`) are as long as those of Lee et al. 2022 (section 4.1, in tokens). Documents are
dropped of which more than a share of the passages are in one of the documents before it that stay, such as quotations,
templates and parts of longer documents. There repeated passages are cut out; here, as elsewhere, a document is dropped
as a whole or stays, so that no sentence is torn. A passage whose first document was dropped for that counts as new:
rather is something kept twice than lost. Documents with fewer than `FEWEST` such passages, about 80 words, all stay.

Memory is bounded, and time grows with the number of keys alone: they are divided on the disk by their remainders, and
each part, of about `PART` keys, is sorted in memory; beside it there are 16 bytes for each document.

**Boilerplate**: lines that are on many pages of a host, such as menus and notices, are removed from all of them: those
on at least `min_pages` pages of a host that are at least `min_share` of its pages. Documents without an address have no
host, and keep their lines. So did Bar-Yossef and Rajagopalan 2002 ("Template detection via data mining and its
applications"), with parts of HTML in place of lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from unmask.data.cleaning.store import BANDS, Store
from unmask.data.corpus.hashes import mixed
from unmask.data.labelled.duplicates import SIMILAR, ngram_hashes
from unmask.data.labelled.folding import fold
from unmask.support.arrays import create_map
from unmask.support.durable import create, named

EQUAL, NEAR, REPEATED = 1, 2, 3
"""What is known of a document that does not stay: it equals an earlier one, is in the group of an earlier one, or
consists of passages of earlier ones."""
AGAIN = 2
"""What is known of a line that occurred before."""
FEWEST = 8
"""Number of compared passages of a document from which on their share counts."""
PART = 1 << 19
"""Number of keys that are sorted at a time."""
_KEY = np.dtype([("key", "<u8"), ("row", "<i8")])
KEPT = 0
"""What is known of a document, or of a line, that stays."""


class Duplicates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [duplicates]: of equal documents, the first stays."""


class NearDuplicates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [near_duplicates]: of nearly equal documents, the first stays.

    Attributes:
        similarity: smallest Jaccard similarity of such documents; below 0.7, many are not found.
    """

    similarity: float = SIMILAR

    def __post_init__(self) -> None:
        if not 0.5 <= self.similarity <= 1:  # which bands find
            raise ValueError(f"similarity must be at least 0.5 and at most 1, not {self.similarity:g}")


class RepeatedLines(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [repeated_lines]: of equal lines, in one document or in several, the first stays."""


class RepeatedPassages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [repeated_passages].

    Attributes:
        max_repeated: maximum share of passages that occur in earlier documents.
    """

    max_repeated: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.max_repeated < 1:
            raise ValueError(f"max_repeated must be at least 0 and below 1, not {self.max_repeated:g}")


def find_duplicates(store: Store, *, similarity: float | None) -> np.ndarray:
    """Find documents to drop: those that equal an earlier one, or nearly equal one of another group.

    Args:
        store: the documents.
        similarity: Jaccard similarity from which documents are nearly equal; None: these stay.

    Returns:
        `KEPT`, `EQUAL` or `NEAR` for each document, (documents,) uint8.
    """
    found = np.full(len(store), KEPT, np.uint8)
    for _, other in _pairs(store, partial(store.column, name="identities"), None):
        found[other] = EQUAL
    if similarity is not None:
        groups = _Groups(len(store))
        similar = _Similarity(store, similarity)
        for band in range(BANDS):
            for first, other in _pairs(store, partial(_band, store, band), found):
                if groups.root(first) != groups.root(other) and similar(first, other):
                    groups.join(first, other)
        found[groups.others()] = NEAR
    return found


def _band(store: Store, band: int, index: int) -> np.ndarray:
    """Return the numbers of a band of the documents of a source."""
    return store.column(index, "bands")[:, band]


def find_repeated_lines(store: Store, dropped: np.ndarray, removed: np.ndarray) -> None:
    """Mark the lines that occurred before in documents that are not dropped.

    Args:
        store: the documents.
        dropped: which documents are dropped, (documents,).
        removed: what is known of each line, (lines,); those that stay and occurred before get `AGAIN`.
    """
    rows = bounds(store, "counts")

    def is_chosen(index: int) -> np.ndarray:
        is_new = np.asarray(removed[rows[store.starts[index]] : rows[store.starts[index + 1]]]) == KEPT
        return is_new & of_rows(store, dropped == KEPT, index, "counts")

    for equal in equal_keys(store, lambda index: store.column(index, "lines"), is_chosen, int(rows[-1])):
        removed[equal.rows[~equal.is_first]] = AGAIN


def find_repeated_passages(store: Store, dropped: np.ndarray, max_repeated: float) -> np.ndarray:
    """Return which documents consist of passages of earlier ones, (documents,) bool.

    Args:
        store: the documents.
        dropped: which documents are dropped before, and not compared, (documents,).
        max_repeated: see `RepeatedPassages`.
    """
    rows = bounds(store, "passage_counts")
    firsts = create_map(store.folder / "passages.part", np.int64(-1), max(1, int(rows[-1])))

    def is_chosen(index: int) -> np.ndarray:
        return of_rows(store, dropped == KEPT, index, "passage_counts")

    for equal in equal_keys(store, lambda index: store.column(index, "passages"), is_chosen, int(rows[-1])):
        documents = np.searchsorted(rows, equal.rows, side="right") - 1
        first = equal.spread(documents)
        is_later = first != documents
        firsts[equal.rows[is_later]] = first[is_later]
    is_repeated = np.zeros(len(store), bool)
    for document in np.flatnonzero((np.diff(rows) >= FEWEST) & (dropped == KEPT)).tolist():
        earlier = np.asarray(firsts[rows[document] : rows[document + 1]])
        count = np.count_nonzero((earlier >= 0) & ~is_repeated[earlier])
        is_repeated[document] = count > max_repeated * len(earlier)
    return is_repeated


def _pairs(store: Store, keys_of: Callable[[int], np.ndarray], dropped: np.ndarray | None) -> Iterator[tuple[int, int]]:
    """Yield pairs of documents with equal keys: each with the first and with the one before it.

    Args:
        store: the documents.
        keys_of: returns the keys of a source, (documents,) uint64; 0 equals none.
        dropped: documents that are left out, (documents,).
    """

    def is_chosen(index: int) -> np.ndarray:
        is_one = np.asarray(keys_of(index)) != 0
        return is_one if dropped is None else is_one & (dropped[store.starts[index] : store.starts[index + 1]] == KEPT)

    for equal in equal_keys(store, keys_of, is_chosen, len(store)):
        others = np.flatnonzero(~equal.is_first)
        firsts, previous = equal.spread(equal.rows)[others], equal.rows[others - 1]
        for first, before, other in zip(firsts.tolist(), previous.tolist(), equal.rows[others].tolist(), strict=True):
            yield first, other
            if before != first:
                yield before, other


class _Groups:
    """Groups of documents, each named by its first one (a union-find)."""

    def __init__(self, count: int) -> None:
        self._parents = np.arange(count)

    def root(self, document: int) -> int:
        """Return the first document of a group."""
        parents = self._parents
        while (parent := int(parents[document])) != document:
            parents[document] = parents[parent]
            document = parent
        return document

    def join(self, first: int, second: int) -> None:
        """Make one group of those of two documents."""
        low, high = sorted((self.root(first), self.root(second)))
        self._parents[high] = low

    def others(self) -> np.ndarray:
        """Return the documents that are not the first of their group."""
        return np.flatnonzero(self._parents != np.arange(len(self._parents)))


class _Similarity:
    """Whether two documents are nearly equal; the n-grams of the last ones are kept.

    Args:
        store: the documents.
        least: smallest Jaccard similarity.
    """

    def __init__(self, store: Store, least: float) -> None:
        self._least = least
        self._ngrams = lru_cache(64)(lambda document: np.unique(ngram_hashes(fold(store.text(document)))))

    def __call__(self, first: int, second: int) -> bool:
        one, other = self._ngrams(first), self._ngrams(second)
        small, large = sorted((len(one), len(other)))
        if small < self._least * large:
            return False
        common = len(np.intersect1d(one, other, assume_unique=True))
        return common >= self._least * (small + large - common)


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
    parts = 1 + total // PART

    def chosen() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield chosen keys, their rows and their parts, of `PART` rows at a time."""
        first = 0
        for index in range(store.sources):
            keys, is_compared = keys_of(index), is_chosen(index)
            for start in range(0, len(keys), PART):
                rows = start + np.flatnonzero(is_compared[start : start + PART])
                yield keys[rows], rows + first, (keys[rows] % np.uint64(parts)).astype(np.int64)
            first += len(keys)

    ends = np.cumsum(sum((np.bincount(of, minlength=parts) for _, _, of in chosen()), np.zeros(parts, np.int64)))
    path, places = store.folder / "keys.part", [0, *ends[:-1].tolist()]
    with named(path), create(path) as file:
        for keys, rows, of in chosen():
            order, together = np.argsort(of, kind="stable"), np.empty(len(keys), _KEY)
            together["key"], together["row"] = keys[order], rows[order]
            in_order = np.cumsum(np.bincount(of, minlength=parts)).tolist()
            for part, (start, end) in enumerate(pairwise([0, *in_order])):
                if start < end:
                    file.seek(places[part] * _KEY.itemsize)
                    file.write(together[start:end].data)
                    places[part] += end - start
    for start, end in pairwise([0, *ends.tolist()]):
        ordered = np.fromfile(path, _KEY, end - start, offset=start * _KEY.itemsize)
        ordered = ordered[np.argsort(ordered["key"], kind="stable")]
        is_first = np.ones(len(ordered), bool)
        is_first[1:] = ordered["key"][1:] != ordered["key"][:-1]
        yield EqualKeys(ordered["key"], ordered["row"], is_first)
    path.unlink()


def bounds(store: Store, name: str) -> np.ndarray:
    """Return where the rows of each document start, and the end of the last, (documents + 1,), given their numbers."""
    counts = [np.zeros(1, np.int64), *(np.asarray(store.column(index, name)) for index in range(store.sources))]
    return np.cumsum(np.concatenate(counts))


def of_rows(store: Store, values: np.ndarray, index: int, name: str) -> np.ndarray:
    """Return for each row of a source the value of its document, given those of all and the column of their numbers."""
    return np.repeat(values[store.starts[index] : store.starts[index + 1]], np.asarray(store.column(index, name)))


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
