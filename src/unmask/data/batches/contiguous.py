"""Windows [CLS] text [SEP] of contiguous streams, for bodies that carry state; a [SEP] ends each document.

Input: documents. Output: samples, each the next window of its stream (data/batches/streams.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.streams import STREAMS, Rows, StreamSettings
from unmask.data.corpus.corpus import Documents


class ContiguousSettings(StreamSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="contiguous"):
    """The recipe's [layout] for `kind = "contiguous"`; see `StreamSettings`."""

    offers = {STREAMS: "layout.kind=contiguous --set layout.streams=8 --set batch.sequences=8"}  # noqa: RUF012

    def text(self, frame: Frame) -> ContiguousText:
        """See `StreamSettings`."""
        return ContiguousText(frame, self.length)


class ContiguousText:
    """Text in windows [CLS] text [SEP]; implements `StreamText`.

    Args:
        frame: the special tokens.
        length: tokens per window, including special tokens.
    """

    def __init__(self, frame: Frame, length: int) -> None:
        self.frame = frame
        self.capacity = self.advance = frame.capacity(length, texts=1)

    def sizes(self, documents: Documents) -> np.ndarray:
        """See `StreamText`."""
        return documents.lengths() + 1

    def read(self, sentences: Sequence[np.ndarray]) -> np.ndarray:
        """See `StreamText`."""
        return np.concatenate([*sentences, [self.frame.sep]])  # (tokens,)

    def window(self, rows: np.ndarray, direction: int, rng: np.random.Generator, other: Rows) -> Sample:
        """See `StreamText`."""
        return self.frame.wrap(rows)
