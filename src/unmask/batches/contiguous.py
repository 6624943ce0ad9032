"""Windows of contiguous streams, for bodies that carry state: each step continues where the previous step stopped.

Input: documents. Output: samples [CLS] text [SEP], each the next window of its stream. The documents of an epoch, in
seeded order and with a [SEP] after each, form one long text; it is cut into as many streams as a batch has sequences,
and each step takes the next window of every stream exactly once. The remainder at the end, less than a window per
stream, is not read in that epoch.

Each epoch orders the documents differently, so the text of a stream is interrupted there: its first window is `fresh`,
and the state is reset. Within an epoch the state is carried across document boundaries, which [SEP] marks.

Dai et al. 2019 (Transformer-XL), section 3.2, and the ordered iterator of their code.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import msgspec
import numpy as np

from unmask.batches.batch import Sample
from unmask.batches.frame import Frame
from unmask.batches.layout import LayoutSettings
from unmask.batches.rng import derive_rng
from unmask.batches.sources import Cursor
from unmask.batches.stages import Stage
from unmask.corpus.corpus import Documents
from unmask.errors import UserError

STREAMS = "contiguous streams"
HELDOUT_WINDOWS = 8
"""Minimum number of windows in each stream of held-out text, if there is enough text."""


class ContiguousSettings(LayoutSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="contiguous"):
    """The recipe's [layout] for `kind = "contiguous"`; see `LayoutSettings`.

    Attributes:
        streams: number of windows that a step reads, one per stream; must equal batch.sequences.
    """

    streams: int

    offers = {STREAMS: "layout.kind=contiguous --set layout.streams=8 --set batch.sequences=8"}  # noqa: RUF012

    @property
    def gives(self) -> frozenset[str]:
        """See `LayoutSettings`."""
        return frozenset({STREAMS})

    @property
    def num_streams(self) -> int:
        """See `LayoutSettings`."""
        return self.streams

    def __post_init__(self) -> None:
        if self.streams < 1:
            raise ValueError("layout.streams must be at least 1")

    def source(
        self, documents: Documents, frame: Frame, *, seed: int, block_tokens: int | None = None
    ) -> ContiguousSource:
        """See `LayoutSettings`; there are no blocks."""
        return ContiguousSource(documents, self.length, self.streams, frame, seed=seed)

    def heldout(self, num_tokens: int, batch_tokens: int) -> ContiguousSettings:
        """See `LayoutSettings`; there are few streams, so that each has many windows."""
        affordable = min(batch_tokens // self.length, num_tokens // (HELDOUT_WINDOWS * self.length))
        return msgspec.structs.replace(self, streams=max(1, min(self.streams, affordable)))


class ContiguousSource:
    """Windows of streams (see the module). Cursor: (epoch, window); key: (epoch, window, stream).

    Args:
        documents: documents of the corpus.
        length: tokens per window, including special tokens.
        streams: number of streams.
        frame: the special tokens.
        seed: seed of the order.
    """

    start: Cursor = (0, 0)
    epoch = None

    def __init__(self, documents: Documents, length: int, streams: int, frame: Frame, *, seed: int) -> None:
        self.documents = documents
        self.stages = (Stage(share=1.0, length=length),)
        self.streams = streams
        self.frame = frame
        self.seed = seed
        self.capacity = frame.capacity(length, texts=1)
        self.num_windows = (documents.num_tokens + len(documents)) // (streams * self.capacity)
        self._text = lru_cache(maxsize=2 * streams)(self._read)
        self._order = lru_cache(maxsize=1)(self._arrange)

    def take(
        self, cursor: Cursor, *, tokens: int | None = None, sequences: int | None = None
    ) -> tuple[list[Sample], Cursor]:
        """Return the next window of every stream, regardless of the limits; see `Source`.

        Raises:
            UserError: the text is too short for a window of each stream.
        """
        if not self.num_windows:
            raise UserError(
                f"the {self.documents.num_tokens:,} tokens of the corpus do not fill a window of {self.capacity} for "
                f"each of {self.streams} streams",
                remedy="add text, or pass a smaller layout.streams (and batch.sequences) or layout.length",
            )
        epoch, window = cursor
        if window == self.num_windows:
            epoch, window = epoch + 1, 0
        return [self._window(epoch, window, stream) for stream in range(self.streams)], (epoch, window + 1)

    def epochs(self, cursor: Cursor) -> float:
        """See `Source`."""
        epoch, window = cursor
        return epoch + window / max(1, self.num_windows)

    def enter(self, cursor: Cursor, stage: int) -> Cursor:
        """See `Source`; there is only one stage."""
        return cursor

    def _window(self, epoch: int, window: int, stream: int) -> Sample:
        order, ends = self._order(epoch)
        offset = (stream * self.num_windows + window) * self.capacity
        index = int(np.searchsorted(ends, offset, side="right"))
        skipped = offset - (int(ends[index - 1]) if index else 0)
        parts: list[np.ndarray] = []
        missing = self.capacity
        while missing:
            part = self._text(int(order[index]))[skipped : skipped + missing]
            parts.append(part)
            missing -= len(part)
            index, skipped = index + 1, 0
        sample = self.frame.wrap(np.concatenate(parts))
        return replace(sample, key=(epoch, window, stream), stream=stream, fresh=window == 0)

    def _arrange(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the document indices of an epoch in order, and the end offset of each, both (documents,)."""
        lengths = self.documents.lengths() + 1  # (documents,)
        order = derive_rng(self.seed, "order", epoch).permutation(len(lengths))  # (documents,)
        return order, lengths[order].cumsum()

    def _read(self, document: int) -> np.ndarray:
        return np.concatenate([*self.documents.sentences(document), [self.frame.sep]])  # (tokens,)
