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
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.rng import derive_rng, derive_seed, permuted
from unmask.data.batches.samples import Cuts, Samples
from unmask.support.errors import UserError
from unmask.support.messages import setting

if TYPE_CHECKING:
    from unmask.data.batches.frame import Frame
    from unmask.data.corpus.corpus import Documents
    from unmask.data.tokenizers.words import Ragged

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
    ) -> tuple[Samples, Cursor]:
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

    def cut(self, frame: Frame, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> Cuts:
        """Return where all samples of these documents are cut, in order. Pure except for `rng`.

        It is decided by the lengths of sentences alone, which are read without the text, as all processes cut all
        blocks, and each of them reads the text of few samples.
        """
        ...

    def samples(self, frame: Frame, texts: Sequence[Ragged], labels: np.ndarray) -> list[Sample]:
        """Return the samples of texts, or of pairs of them, with any keys.

        Args:
            frame: the special tokens.
            texts: the texts, or the first and the second texts.
            labels: the labels of their cuts, (samples,).
        """
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
    ) -> tuple[Samples, Cursor]:
        """See `Source`.

        Raises:
            TextTooShortError: the layout cuts no sample from the whole corpus.
        """
        epoch, block, item, stage = cursor
        taken = _Taken(tokens, sequences)
        empty = 0
        while True:
            samples = self._block(stage, epoch, block)
            empty = 0 if len(samples) else empty + 1
            if empty >= 2 * self.num_blocks:  # orders differ: the only block with samples may come first, then last
                raise TextTooShortError(
                    f"no sample can be cut from the {len(self.documents)} documents of the corpus",
                    remedy="the text or layout.length is too short for this layout: add text, or choose another layout "
                    f"with {setting('layout.kind', 'document_sentences')} and "
                    f"{setting('objective.next_sentence', False)}",
                )
            item = taken.add(samples, item)
            if taken.full:
                return taken.samples, (epoch, block, item, stage)
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

    def _cut(self, stage: int, epoch: int, block: int) -> Samples:
        first = block * self.per_block
        places = np.arange(first, min(first + self.per_block, len(self.documents)))
        indices = permuted(places, len(self.documents), derive_seed(self.seed, "order", epoch)).tolist()
        rng = derive_rng(self.seed, "layout", epoch, block)
        cuts = self.layouts[stage].cut(self.frame, self.documents, indices, rng)
        order = rng.permutation(len(cuts))
        layout, texts = self.layouts[stage], _Texts(self.documents, frozenset(indices))

        def read(items: Sequence[int]) -> list[Sample]:
            chosen = order[list(items)]
            ids = texts.read(cuts.documents(chosen))
            samples: dict[int, Sample] = {}
            for pairs in (False, True):
                own = chosen[cuts.pairs[chosen] == pairs]
                if len(own):
                    parts = cuts.texts(own, ids, self.frame.sep)
                    samples |= zip(own.tolist(), layout.samples(self.frame, parts, cuts.labels[own]), strict=True)
            return [
                samples[index].changed(key=(epoch, block, item), stage=stage)
                for item, index in zip(items, chosen.tolist(), strict=True)
            ]

        return Samples(cuts.lengths(self.frame.between)[order], read, stage)


class _Texts:
    """The texts of documents. Those of a block are kept, as each is read for several samples.

    Args:
        documents: the documents.
        block: indices of those of the block.
    """

    def __init__(self, documents: Documents, block: frozenset[int]) -> None:
        self._documents, self._block = documents, block
        self._kept: dict[int, np.ndarray] = {}

    def read(self, indices: Iterable[int]) -> Mapping[int, np.ndarray]:
        """Return the ids of the tokens of some documents, (tokens,) each, by index."""
        missing = list({*indices} - self._kept.keys())
        texts = dict(zip(missing, self._documents.tokens(missing), strict=True))
        self._kept |= {index: ids for index, ids in texts.items() if index in self._block}
        return ChainMap(self._kept, texts)


class _Taken:
    """The samples of a step, up to its number of tokens or of sequences.

    Args:
        tokens: maximum number of tokens, of more than one sample.
        sequences: number of samples; used if there is no number of tokens.

    Attributes:
        full: whether the next sample does not fit, or nothing is left.
    """

    def __init__(self, tokens: int | None, sequences: int | None) -> None:
        capacity = tokens if tokens is not None else sequences
        assert capacity is not None, "either tokens or sequences must be given"
        self.full = False
        self._left, self._by_length = capacity, tokens is not None
        self._parts: list[tuple[Samples, int, int]] = []

    def add(self, samples: Samples, first: int) -> int:
        """Take as many samples as fit, from index `first` on; return the index of the next one."""
        sizes = samples.lengths[first : first + max(1, self._left)]  # each has a token
        ends = np.cumsum(sizes if self._by_length else np.ones_like(sizes))
        number = int(np.searchsorted(ends, self._left, side="right"))
        if not (number or self._parts) and len(sizes):
            number = 1
        if number:
            self._parts.append((samples, first, first + number))
            self._left -= int(ends[number - 1])
        self.full = self._left <= 0 or first + number < len(samples)
        return first + number

    @property
    def samples(self) -> Samples:
        """The samples taken; at least one."""
        return Samples.joined(self._parts)


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
        self._lengths = np.fromiter(map(len, samples), np.int64, len(samples))
        longest = int(self._lengths.max())
        self.stages = tuple(Stage(share=share, length=longest, name=name) for share, name in stages)
        self.start: Cursor = (0, 0, 0) if len(stages) > 1 else (0, 0)
        self.epoch = len(samples), int(self._lengths.sum())
        self.seed = seed
        self._epoch = lru_cache(maxsize=2)(self._arrange)

    def take(
        self, cursor: Cursor, *, tokens: int | None = None, sequences: int | None = None
    ) -> tuple[Samples, Cursor]:
        """See `Source`."""
        epoch, item, *stage = cursor
        taken = _Taken(tokens, sequences)
        while True:
            item = taken.add(self._epoch(epoch, *stage), item)
            if taken.full:
                return taken.samples, (epoch, item, *stage)
            epoch, item = epoch + 1, 0

    def _arrange(self, epoch: int, stage: int = 0) -> Samples:
        """Return the samples of an epoch in their order."""
        order = permuted(np.arange(len(self.samples)), len(self.samples), derive_seed(self.seed, "order", epoch))

        def read(items: Sequence[int]) -> list[Sample]:
            examples = order[list(items)].tolist()
            return [self.samples[example].changed(key=(epoch, example), stage=stage) for example in examples]

        return Samples(self._lengths[order], read, stage)

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
    ) -> tuple[Samples, Cursor]:
        """See `Source`; the samples are those of one task, whose index begins their keys."""
        step, *inner = cursor
        task = self.task_at(step)
        begin, end = 2 * task, 2 * task + 2
        taken, after = self.sources[task].take(tuple(inner[begin:end]), tokens=tokens, sequences=sequences)
        named = taken.map(lambda sample: sample.named((task, *sample.key)))
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
