"""Documents that consist of passages of earlier ones, such as quotations, templates and parts of longer documents.

In: the passages of all documents (`signatures.passage_keys`), as long as those of Lee et al. 2022 (arXiv 2107.06499,
section 4.1, in tokens). Out: which documents are dropped: those of which more than a share of the
passages are in one of the documents before it that stay. There repeated passages are cut out; here, as elsewhere, a
document is dropped as a whole or stays, so that no sentence is torn. A passage whose first document was dropped for
that counts as new: rather is something kept twice than lost.

Documents with fewer than `FEWEST` such passages, about 80 words, all stay.
"""

from __future__ import annotations

import msgspec
import numpy as np

from unmask.data.cleaning.grouping import KEPT, bounds, equal_keys
from unmask.data.cleaning.store import Store
from unmask.support.errors import UserError

REPEATED = 3
"""What is known of a document that is dropped by this rule."""
FEWEST = 8
"""Number of compared passages of a document from which on their share counts."""


class RepeatedPassages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [repeated_passages].

    Attributes:
        max_repeated: maximum share of passages that occur in earlier documents.
    """

    max_repeated: float = 0.5

    def check(self) -> None:
        """Raise a UserError if the share is none."""
        if not 0 <= self.max_repeated < 1:
            raise UserError(f"repeated_passages.max_repeated must be at least 0 and below 1, not {self.max_repeated:g}")


def find_repeated_passages(store: Store, dropped: np.ndarray, max_repeated: float) -> np.ndarray:
    """Return which documents consist of passages of earlier ones, (documents,) bool.

    Args:
        store: the documents.
        dropped: which documents are dropped before, and not compared, (documents,).
        max_repeated: see `RepeatedPassages`.
    """
    rows = bounds(store, "passage_counts")
    firsts = np.memmap(store.folder / "passages.part", np.int64, "w+", shape=(max(1, int(rows[-1])),))
    firsts[:] = -1

    def is_chosen(index: int) -> np.ndarray:
        counts = np.asarray(store.column(index, "passage_counts"))
        return np.repeat(dropped[store.starts[index] : store.starts[index + 1]] == KEPT, counts)

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
