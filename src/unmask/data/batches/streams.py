"""Samples that continue each other from step to step, for bodies that carry state.

Input: documents, and how their text is cut into windows (`StreamSettings`). Output: the next window of every stream, at
each step. The documents of an epoch, in seeded order, form one long text; it is cut into as many streams as a batch has
sequences, and each step takes the next window of every stream exactly once. The remainder at the end, less than a
window per stream, is not read in that epoch.

Windows may overlap: the next one then starts within the previous one.

Each epoch orders the documents differently, so the text of a stream is interrupted there: its first window is `fresh`,
and the state is reset. Within an epoch the state is carried across document boundaries.

Dai et al. 2019 (Transformer-XL), section 3.2, and the ordered iterator of their code.

The plain layout has windows [CLS] text [SEP]; a [SEP] ends each document.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import LayoutSettings
from unmask.data.batches.rng import derive_rng
from unmask.data.batches.samples import Cuts, Samples
from unmask.data.batches.sources import DIRECTED, STREAMS, Cursor, Stage, TextTooShortError

if TYPE_CHECKING:
    from unmask.data.corpus.corpus import Documents

HELDOUT_WINDOWS = 8
"""Minimum number of windows in each stream of held-out text, if there is enough text."""


Rows = Callable[[], np.ndarray]
"""Returns as many rows as a window has, from a random place of the text."""


class StreamSettings(LayoutSettings, frozen=True, kw_only=True):
    """The settings of layouts in streams; see `LayoutSettings`.

    Attributes:
        streams: number of windows that a step reads, one per stream; must equal batch.sequences.
        directions: 1, or 2 if the second half of the streams reads the whole text, too, from its end.
    """

    streams: int

    directions: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.streams < 1:
            raise ValueError("layout.streams must be at least 1")
        if self.streams % self.directions:
            raise ValueError("layout.streams must be even: half of the streams read backwards")

    @property
    def provides(self) -> frozenset[str]:
        """See `LayoutSettings`."""
        return frozenset({STREAMS})

    @property
    def requires(self) -> frozenset[str]:
        """See `LayoutSettings`."""
        return frozenset({DIRECTED} if self.directions > 1 else ())

    @property
    def num_streams(self) -> int:
        """See `LayoutSettings`."""
        return self.streams

    @abstractmethod
    def capacity(self, frame: Frame) -> int:
        """Return the number of rows of the text in a window."""

    def advance(self, frame: Frame) -> int:
        """Return the number of rows after which the next window starts."""
        return self.capacity(frame)

    def sizes(self, documents: Documents) -> np.ndarray:
        """Return the number of rows of each document, (documents,): its tokens, and a [SEP] that ends it."""
        return documents.lengths() + 1

    @abstractmethod
    def read(self, frame: Frame, sentences: Sequence[np.ndarray]) -> np.ndarray:
        """Return the rows of a document, such as its ids."""

    @abstractmethod
    def window(self, frame: Frame, rows: np.ndarray, direction: int, rng: np.random.Generator, other: Rows) -> Sample:
        """Return the sample of a window, of `length` tokens, with an empty key.

        Args:
            frame: the special tokens.
            rows: as many as a window has, in the order of the text.
            direction: 0, or 1 if the window is read from its end.
            rng: source of all randomness.
            other: returns other rows.
        """

    def cut(self, frame: Frame, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> Cuts:
        """See `LayoutSettings`: nothing calls it, as `source` reads windows of the whole text."""
        raise NotImplementedError

    def source(self, documents: Documents, frame: Frame, *, seed: int, block_tokens: int | None = None) -> StreamSource:
        """See `LayoutSettings`; there are no blocks."""
        return StreamSource(documents, self, frame, seed=seed)

    def heldout(self, num_tokens: int, batch_tokens: int) -> Self:
        """See `LayoutSettings`; there are few streams, so that each has many windows."""
        affordable = min(batch_tokens // self.length, num_tokens // (HELDOUT_WINDOWS * self.length))
        readers = max(1, min(self.streams, affordable) // self.directions)
        return msgspec.structs.replace(self, streams=readers * self.directions)


class StreamSource:
    """Windows of streams (see the module). Cursor: (epoch, window); key: (epoch, window, stream).

    Args:
        documents: documents of the corpus.
        layout: how their text is cut into windows.
        frame: the special tokens.
        seed: seed of the order.

    Attributes:
        capacity, advance: see `StreamSettings`.
        readers: number of streams in each direction.
    """

    start: Cursor = (0, 0)
    epoch = None

    def __init__(self, documents: Documents, layout: StreamSettings, frame: Frame, *, seed: int) -> None:
        self.documents, self.layout, self.frame = documents, layout, frame
        self.capacity, self.advance = layout.capacity(frame), layout.advance(frame)
        self.stages = (Stage(share=1.0, length=layout.length),)
        self.readers, self.streams = layout.streams // layout.directions, layout.streams
        self.seed = seed
        self.total = int(layout.sizes(documents).sum())
        self.num_windows = max(0, self.total - self.capacity + self.advance) // (self.readers * self.advance)
        self._read = lru_cache(maxsize=2 * self.streams)(lambda number: layout.read(frame, documents.sentences(number)))
        self._order = lru_cache(maxsize=1)(self._arrange)

    def take(
        self, cursor: Cursor, *, tokens: int | None = None, sequences: int | None = None
    ) -> tuple[Samples, Cursor]:
        """Return the next window of every stream, regardless of the limits; see `Source`.

        Raises:
            TextTooShortError: there is no window of each stream.
        """
        if not self.num_windows:
            raise TextTooShortError(
                f"the {self.documents.num_tokens:,} tokens of the corpus do not fill a window of {self.capacity} "
                f"for each of {self.streams} streams",
                remedy="add text, or pass a smaller layout.streams (and batch.sequences) or layout.length",
            )
        epoch, window = cursor
        if window == self.num_windows:
            epoch, window = epoch + 1, 0
        lengths = np.full(self.streams, self.layout.length)
        samples = Samples(lengths, lambda streams: [self._window(epoch, window, stream) for stream in streams])
        return samples, (epoch, window + 1)

    def epochs(self, cursor: Cursor) -> float:
        """See `Source`."""
        epoch, window = cursor
        return epoch + window / max(1, self.num_windows)

    def enter(self, cursor: Cursor, stage: int) -> Cursor:
        """See `Source`; there is only one stage."""
        return cursor

    def _window(self, epoch: int, window: int, stream: int) -> Sample:
        direction, reader = divmod(stream, self.readers)
        size = self.capacity
        first = (reader * self.num_windows + window) * self.advance
        rows = self._rows(epoch, self.total - first - size if direction else first)
        rng = derive_rng(self.seed, "windows", epoch, window, stream)
        sample = self.layout.window(
            self.frame, rows, direction, rng, lambda: self._rows(epoch, int(rng.integers(self.total - size + 1)))
        )
        return replace(sample, key=(epoch, window, stream), stream=stream, fresh=window == 0)

    def _rows(self, epoch: int, first: int) -> np.ndarray:
        """Return the rows of a window of an epoch's text, given its first row."""
        order, ends = self._order(epoch)
        index = int(np.searchsorted(ends, first, side="right"))
        skipped = first - (int(ends[index - 1]) if index else 0)
        parts: list[np.ndarray] = []
        missing = self.capacity
        while missing:
            part = self._read(int(order[index]))[skipped : skipped + missing]
            parts.append(part)
            missing -= len(part)
            index, skipped = index + 1, 0
        return np.concatenate(parts)

    def _arrange(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the document indices of an epoch in order, and the end of each in its text, both (documents,)."""
        sizes = self.layout.sizes(self.documents)  # (documents,)
        order = derive_rng(self.seed, "order", epoch).permutation(len(sizes))  # (documents,)
        return order, sizes[order].cumsum()


class ContiguousSettings(StreamSettings, frozen=True, kw_only=True, tag="contiguous"):
    """The recipe's [layout] for `kind = "contiguous"`; see `StreamSettings`."""

    offers: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        STREAMS: {"layout.kind": "contiguous", "layout.streams": 8, "batch.sequences": 8}
    }

    def capacity(self, frame: Frame) -> int:
        """See `StreamSettings`."""
        return frame.capacity(self.length, texts=1)

    def read(self, frame: Frame, sentences: Sequence[np.ndarray]) -> np.ndarray:
        """See `StreamSettings`."""
        return np.concatenate([*sentences, [frame.sep]])  # (tokens,)

    def window(self, frame: Frame, rows: np.ndarray, direction: int, rng: np.random.Generator, other: Rows) -> Sample:
        """See `StreamSettings`."""
        return frame.wrap(rows)
