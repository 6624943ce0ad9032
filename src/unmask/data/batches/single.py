"""One sample per document: documents longer than a sequence are truncated at the end.

For texts that are short by nature (reviews, queries, notes), one per line.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import LayoutSettings
from unmask.data.corpus.corpus import Documents


class SingleSettings(LayoutSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="single"):
    """The recipe's [layout] for `kind = "single"`; see `LayoutSettings`."""

    def build(self, frame: Frame, length: int) -> Single:
        """See `LayoutSettings`."""
        return Single(frame, length)


class Single:
    """See the module."""

    def __init__(self, frame: Frame, length: int) -> None:
        self.frame = frame
        self.capacity = frame.capacity(length, texts=1)

    def cut(self, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """See `Layout`."""
        texts = (np.concatenate(documents.sentences(index))[: self.capacity] for index in indices)
        return [self.frame.wrap(text) for text in texts]
