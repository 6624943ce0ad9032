"""Sources of samples, their order, and the stages of a run.
Input: the documents of a corpus and a layout (how samples are cut from documents), or a list of ready samples, or one
such source for each of several tasks.
Output: samples with keys, in an order that is a pure function of the seed and a cursor, so that a checkpoint stores a
few integers and no queue.

An epoch visits the documents of a corpus in a seeded permutation, one block at a time; the samples of a block are cut
and shuffled together. As a block contains documents from the whole corpus, this is close to a global shuffle of
samples, but needs no table of them. The blocks are the same in all stages; where a stage begins, the order continues
with the next block, since another layout cuts the current block into different samples. Only the rest of that block is
skipped in the epoch, and nothing is read twice.

Of several tasks, each step reads the examples of one. Task i with n_i examples is drawn with a probability proportional
to n_i^(1/T): by size with T = 1, almost equally with a large T (Raffel et al. 2020, section 3.5.2, "temperature-scaled
mixing"). Unlike there, the numbers of examples are not limited, and a batch has examples of one task only, as in Liu et
al. 2019 (MT-DNN, Algorithm 1), so that each step is one of a task alone.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.rng import derive_rng, derive_seed, permuted
from unmask.support.errors import UserError
from unmask.support.messages import setting

if TYPE_CHECKING:
    from unmask.data.batches.frame import Frame
    from unmask.data.corpus.corpus import Documents

Cursor = tuple[int, ...]
"""Position in the order; opaque to the training loop, and the only data state in a checkpoint."""
STREAMS = "contiguous streams"
"""What a layout provides whose sources have streams."""
DIRECTED = "an encoder that knows in which direction it reads"
"""What a layout requires some of whose samples are text in reverse order, which to other encoders would be text."""
BLOCK_TOKENS = 250_000
"""Approximate number of text tokens in a block."""


class TextTooShortError(UserError):
    """A text is too short for a layout, which cuts no sample from it."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A part of a run with its own layout, masking and objectives, as the training loop sees it.

    Devlin et al. 2019, appendix A.2: as the cost of attention is quadratic in the length, 90 % of the steps read
    sequences of 128 tokens, and the rest sequences of 512, from which the later positions are learned.

    Attributes:
        share: share of the run's steps.
        length: maximum tokens per sequence, including special tokens.
        name: what distinguishes it from the other stages, for display.
        weights: the weights of parts of the loss that differ from the learner's.
    """

    share: float
    length: int
    name: str = ""
    weights: Mapping[str, float] = field(default_factory=dict)


def stage_ends(stages: Sequence[Stage], total: int) -> list[int]:
    """Return the number of steps, out of `total`, after which each stage ends."""
    *shares, _ = accumulate(stage.share for stage in stages)
    return [*(round(share * total) for share in shares), total]


def stage_at(stages: Sequence[Stage], step: int, total: int) -> int:
    """Return the index of the stage that a step (from 0, out of `total`) belongs to."""
    return bisect_right(stage_ends(stages, total)[:-1], step)


class Source(Protocol):
    """Samples in an endless, seeded order. All methods are pure.

    Attributes:
        start: the cursor of the first sample.
        streams: number of streams of which each step takes the next window; 0 if samples are independent.
        epoch: numbers of samples and of tokens of an epoch, where they are known; None otherwise.
    """

    start: Cursor
    streams: int

    @property
    def epoch(self) -> tuple[int, int] | None:
        """See above."""
        ...

    @property
    def stages(self) -> Sequence[Stage]:
        """The stages of a run; at least one."""
        ...

    def take(
        self, cursor: Cursor, *, tokens: int | None = None, sequences: int | None = None
    ) -> tuple[list[Sample], Cursor]:
        """Return the next samples, at most `tokens` tokens (at least one sample) or `sequences`, and the new cursor."""
        ...

    def epochs(self, cursor: Cursor) -> float:
        """Return the number of epochs up to a cursor."""
        ...

    def enter(self, cursor: Cursor, stage: int) -> Cursor:
        """Return the cursor at which the order continues in a stage: the same one if it is already in that stage."""
        ...


class Layout(Protocol):
    """Cuts samples from documents."""

    def cut(self, frame: Frame, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """Return all samples of these documents, in order, with empty keys. Pure except for `rng`."""
        ...


class CorpusSource:
    """Samples cut from documents. Cursor: (epoch, block, item, stage); key: (epoch, block, item).

    Args:
        documents: documents of the corpus.
        layouts: the stages of a run, at least one, each with its layout.
        frame: the special tokens.
        seed: seed of the order and of the layout.
        block_tokens: approximate number of tokens that are cut and shuffled together, at most `BLOCK_TOKENS`, which is
            also the default.
    """

    start: Cursor = (0, 0, 0, 0)
    streams = 0
    epoch = None

    def __init__(
        self,
        documents: Documents,
        layouts: Sequence[tuple[Stage, Layout]],
        frame: Frame,
        *,
        seed: int,
        block_tokens: int | None = None,
    ) -> None:
        self.documents = documents
        self.stages, self.layouts = zip(*layouts, strict=True)
        self.frame = frame
        self.seed = seed
        mean = max(1, documents.num_tokens // max(1, len(documents)))
        self.per_block = max(1, min(len(documents), min(block_tokens or BLOCK_TOKENS, BLOCK_TOKENS) // mean))
        self.num_blocks = -(-len(documents) // self.per_block)
        self._block = lru_cache(maxsize=2)(self._cut)

    def take(
        self, cursor: Cursor, *, tokens: int | None = None, sequences: int | None = None
    ) -> tuple[list[Sample], Cursor]:
        """See `Source`.

        Raises:
            TextTooShortError: the layout cuts no sample from the whole corpus.
        """
        epoch, block, item, stage = cursor
        taken: list[Sample] = []
        capacity = tokens if tokens is not None else sequences
        assert capacity is not None, "either tokens or sequences must be given"
        empty = 0
        while True:
            samples = self._block(stage, epoch, block)
            empty = 0 if samples else empty + 1
            if empty >= 2 * self.num_blocks:  # orders differ: the only block with samples may come first, then last
                raise TextTooShortError(
                    f"no sample can be cut from the {len(self.documents)} documents of the corpus",
                    remedy="the text or layout.length is too short for this layout: add text, or choose another layout "
                    f"with {setting('layout.kind', 'document_sentences')} and "
                    f"{setting('objective.next_sentence', False)}",
                )
            while item < len(samples):
                size = len(samples[item]) if tokens is not None else 1
                if size > capacity and taken:
                    return taken, (epoch, block, item, stage)
                taken.append(samples[item])
                capacity -= size
                item += 1
                if capacity <= 0:
                    return taken, (epoch, block, item, stage)
            item = 0
            epoch, block = self._next_block(epoch, block)

    def epochs(self, cursor: Cursor) -> float:
        """See `Source`."""
        epoch, block, item, stage = cursor
        return epoch + (block + item / max(1, len(self._block(stage, epoch, block)))) / self.num_blocks

    def enter(self, cursor: Cursor, stage: int) -> Cursor:
        """See `Source`; another stage starts with the next unread block."""
        epoch, block, item, previous = cursor
        if stage == previous:
            return cursor
        if item:
            epoch, block = self._next_block(epoch, block)
        return epoch, block, 0, stage

    def _next_block(self, epoch: int, block: int) -> tuple[int, int]:
        return (epoch, block + 1) if block + 1 < self.num_blocks else (epoch + 1, 0)

    def _cut(self, stage: int, epoch: int, block: int) -> list[Sample]:
        first = block * self.per_block
        order = derive_seed(self.seed, "order", epoch)
        indices = [
            permuted(index, len(self.documents), order)
            for index in range(first, min(first + self.per_block, len(self.documents)))
        ]
        rng = derive_rng(self.seed, "layout", epoch, block)
        samples = self.layouts[stage].cut(self.frame, self.documents.fetched(indices), indices, rng)
        order_in_block = enumerate(rng.permutation(len(samples)))
        return [samples[index].changed(key=(epoch, block, item), stage=stage) for item, index in order_in_block]


class ExampleSource:
    """Ready samples (labelled examples), reshuffled in each epoch. Cursor: (epoch, item, stage); key: (epoch, example).

    With a single stage the cursor does not contain it.

    Args:
        samples: the samples.
        seed: seed of the order.
        stages: the share and the name of each stage; all stages read the same samples, in an order that goes on.
    """

    streams = 0

    def __init__(
        self, samples: Sequence[Sample], *, seed: int, stages: Sequence[tuple[float, str]] = ((1.0, ""),)
    ) -> None:
        if not samples:
            raise UserError("there are no examples to train on")
        self.samples = samples
        lengths = list(map(len, samples))
        self.stages = tuple(Stage(share=share, length=max(lengths), name=name) for share, name in stages)
        self.start: Cursor = (0, 0, 0) if len(stages) > 1 else (0, 0)
        self.epoch = len(samples), sum(lengths)
        self.seed = seed

    def take(
        self, cursor: Cursor, *, tokens: int | None = None, sequences: int | None = None
    ) -> tuple[list[Sample], Cursor]:
        """See `Source`."""
        epoch, item, *stage = cursor
        taken: list[Sample] = []
        capacity = tokens if tokens is not None else sequences
        assert capacity is not None, "either tokens or sequences must be given"
        order = derive_seed(self.seed, "order", epoch)
        while capacity > 0:
            if item == len(self.samples):
                epoch, item = epoch + 1, 0
                order = derive_seed(self.seed, "order", epoch)
            example = permuted(item, len(self.samples), order)
            sample = self.samples[example]
            size = len(sample) if tokens is not None else 1
            if size > capacity and taken:
                break
            taken.append(sample.changed(key=(epoch, example), stage=stage[0] if stage else 0))
            capacity -= size
            item += 1
        return taken, (epoch, item, *stage)

    def epochs(self, cursor: Cursor) -> float:
        """See `Source`."""
        return cursor[0] + cursor[1] / len(self.samples)

    def enter(self, cursor: Cursor, stage: int) -> Cursor:
        """See `Source`; the order goes on."""
        return (*cursor[:2], stage) if len(cursor) > 2 else cursor


def mixing_rates(sizes: Sequence[int], temperature: float) -> np.ndarray:
    """Return the probability of each task, (tasks,) float64.

    Args:
        sizes: numbers of examples, at least 1 each.
        temperature: T, above 0; infinity: all tasks are equally probable.
    """
    logs = np.log(sizes) / temperature  # of powers that may overflow
    powers = np.exp(logs - logs.max())
    return powers / powers.sum()


class MixedSource:
    """Batches of one task each, in a seeded order. Cursor: the step, and the cursor of each task.

    Args:
        parts: the examples of each task.
        temperature: see `mixing_rates`.
        seed: seed of the order of the tasks and of the examples of each.

    Attributes:
        rates: the probability of each task, (tasks,).
    """

    streams = 0
    epoch = None

    def __init__(self, parts: Sequence[Sequence[Sample]], *, temperature: float, seed: int) -> None:
        self.sources = [ExampleSource(samples, seed=seed) for samples in parts]
        self.sizes = list(map(len, parts))
        self.rates = mixing_rates(self.sizes, temperature)
        self.seed = seed
        self.stages = (Stage(share=1.0, length=max(source.stages[0].length for source in self.sources)),)
        self.start: Cursor = (0, *(number for source in self.sources for number in source.start))

    def task_at(self, step: int) -> int:
        """Return the index of the task of a step, a function of the seed and the step."""
        draw = derive_rng(self.seed, "task", step).random()
        return min(int(np.searchsorted(np.cumsum(self.rates), draw, side="right")), len(self.rates) - 1)

    def take(
        self, cursor: Cursor, *, tokens: int | None = None, sequences: int | None = None
    ) -> tuple[list[Sample], Cursor]:
        """See `Source`; the samples are those of one task, whose index begins their keys."""
        step, *inner = cursor
        task = self.task_at(step)
        begin, end = 2 * task, 2 * task + 2
        taken, after = self.sources[task].take(tuple(inner[begin:end]), tokens=tokens, sequences=sequences)
        named = [sample.named((task, *sample.key)) for sample in taken]
        return named, (step + 1, *inner[:begin], *after, *inner[end:])

    def epochs(self, cursor: Cursor) -> float:
        """See `Source`: the number of examples read, of all tasks, as a multiple of their number."""
        read = [epochs * size for epochs, size in zip(self.epochs_of_each(cursor), self.sizes, strict=True)]
        return math.fsum(read) / sum(self.sizes)

    def epochs_of_each(self, cursor: Cursor) -> list[float]:
        """Return the number of epochs of each task up to a cursor."""
        parts = zip(cursor[1::2], cursor[2::2], strict=True)
        return [source.epochs(part) for source, part in zip(self.sources, parts, strict=True)]

    def enter(self, cursor: Cursor, stage: int) -> Cursor:
        """See `Source`: there is one stage."""
        return cursor
