"""Where samples come from, and in which order.

In: a corpus's documents and a layout (how samples are cut from documents), or a list of ready samples.
Out: samples, each named by a key; an order that is a pure function of the seed and of a cursor, so that a checkpoint
stores a few integers and no queue.

A pass over a corpus visits its documents in a seeded permutation, a block of them at a time; the samples of a block
are cut together and shuffled together. As a block holds documents from everywhere, this is close to a global
shuffle of samples, and needs no table of them. The blocks are the same in all stages; where the length changes, the
order goes on with the next block, for at another length the block at hand is cut into other samples. Its rest is all
that a pass leaves out there, and nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from unmask.batches.batch import Key, Sample
from unmask.batches.frame import Frame
from unmask.batches.rng import derive_rng, derive_seed, permuted
from unmask.batches.stages import Stage
from unmask.corpus.corpus import Documents
from unmask.errors import UserError

Cursor = tuple[int, ...]
"""Where the order stands; opaque to the loop, and all the data state of a checkpoint."""

BLOCK_TOKENS = 250_000
"""About how many tokens of text a block holds."""


class Source(Protocol):
    """Samples in an endless, seeded order. All methods are pure.

    Attributes:
        start: the cursor of the first sample.
        streams: 0: samples are independent; else each step takes the next window of each of so many streams.
    """

    start: Cursor
    streams: int

    @property
    def stages(self) -> Sequence[Stage]:
        """The stages of a run, of which there is one at least."""
        ...

    def take(
        self, cursor: Cursor, *, tokens: int | None = None, sequences: int | None = None
    ) -> tuple[list[Sample], Cursor]:
        """Return the next samples, at most `tokens` tokens (at least one sample) or `sequences`, and the new cursor."""
        ...

    def epochs(self, cursor: Cursor) -> float:
        """How many passes over the data a cursor stands for."""
        ...

    def enter(self, cursor: Cursor, stage: int) -> Cursor:
        """Return where the order goes on in a stage: at the cursor itself where it stands in that one already."""
        ...


class Layout(Protocol):
    """Cuts samples from documents."""

    def cut(self, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """Return all samples of these documents, in order, with empty keys. Pure but for `rng`."""
        ...


class Cutting(Protocol):
    """What the settings of a layout tell of it."""

    @property
    def all_stages(self) -> Sequence[Stage]:
        """The stages of a run, of which there is one at least."""
        ...

    def build(self, frame: Frame, length: int) -> Layout:
        """Return the layout at one length."""
        ...


class CorpusSource:
    """Samples cut from documents. Cursor: (pass, block, item, stage); key: (pass, block, item).

    Args:
        documents: of the corpus.
        layout: the recipe's.
        frame: the special tokens.
        seed: of the order and of all that the layout draws.
        block_tokens: about so many are cut and shuffled at a time, at most `BLOCK_TOKENS`, which is also the default.
    """

    start: Cursor = (0, 0, 0, 0)
    streams = 0

    def __init__(
        self,
        documents: Documents,
        layout: Cutting,
        frame: Frame,
        *,
        seed: int,
        block_tokens: int | None = None,
    ) -> None:
        self.documents = documents
        self.stages = layout.all_stages
        self.layouts = [layout.build(frame, stage.length) for stage in self.stages]
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
            UserError: the layout finds no sample in the whole corpus.
        """
        epoch, block, item, stage = cursor
        taken: list[Sample] = []
        room = tokens if tokens is not None else sequences
        assert room is not None, "a batch is counted in tokens or in sequences"
        empty = 0
        while True:
            samples = self._block(stage, epoch, block)
            empty = 0 if samples else empty + 1
            if empty >= 2 * self.num_blocks:  # the order differs: the only block with samples may be first, then last
                raise UserError(
                    f"no sample can be cut from the {len(self.documents)} documents of the corpus",
                    remedy="the text, or layout.length, is too short for this layout: add text, or choose another one "
                    "with --set layout.kind=document_sentences --set objective.next_sentence=false",
                )
            while item < len(samples):
                size = len(samples[item]) if tokens is not None else 1
                if size > room and taken:
                    return taken, (epoch, block, item, stage)
                taken.append(samples[item])
                room -= size
                item += 1
                if room <= 0:
                    return taken, (epoch, block, item, stage)
            item = 0
            epoch, block = self._following(epoch, block)

    def epochs(self, cursor: Cursor) -> float:
        """See `Source`."""
        epoch, block, item, stage = cursor
        return epoch + (block + item / max(1, len(self._block(stage, epoch, block)))) / self.num_blocks

    def enter(self, cursor: Cursor, stage: int) -> Cursor:
        """See `Source`; another stage begins with the next block that is untouched."""
        epoch, block, item, before = cursor
        if stage == before:
            return cursor
        if item:
            epoch, block = self._following(epoch, block)
        return epoch, block, 0, stage

    def _following(self, epoch: int, block: int) -> tuple[int, int]:
        return (epoch, block + 1) if block + 1 < self.num_blocks else (epoch + 1, 0)

    def _cut(self, stage: int, epoch: int, block: int) -> list[Sample]:
        first = block * self.per_block
        order = derive_seed(self.seed, "order", epoch)
        indices = [
            permuted(place, len(self.documents), order)
            for place in range(first, min(first + self.per_block, len(self.documents)))
        ]
        rng = derive_rng(self.seed, "layout", epoch, block)
        samples = self.layouts[stage].cut(self.documents, indices, rng)
        return [samples[at].named((epoch, block, item)) for item, at in enumerate(rng.permutation(len(samples)))]


class ExampleSource:
    """Ready samples (labelled examples), shuffled anew in each pass. Cursor: (pass, item); key: (pass, example)."""

    start: Cursor = (0, 0)
    streams = 0

    def __init__(self, samples: Sequence[Sample], *, seed: int) -> None:
        if not samples:
            raise UserError("there are no examples to train on")
        self.samples = samples
        self.stages = (Stage(share=1.0, length=max(map(len, samples))),)
        self.seed = seed

    def take(
        self, cursor: Cursor, *, tokens: int | None = None, sequences: int | None = None
    ) -> tuple[list[Sample], Cursor]:
        """See `Source`."""
        epoch, item = cursor
        taken: list[Sample] = []
        room = tokens if tokens is not None else sequences
        assert room is not None, "a batch is counted in tokens or in sequences"
        while room > 0:
            if item == len(self.samples):
                epoch, item = epoch + 1, 0
            example = permuted(item, len(self.samples), derive_seed(self.seed, "order", epoch))
            sample = self.samples[example]
            size = len(sample) if tokens is not None else 1
            if size > room and taken:
                break
            key: Key = (epoch, example)
            taken.append(sample.named(key))
            room -= size
            item += 1
        return taken, (epoch, item)

    def epochs(self, cursor: Cursor) -> float:
        """See `Source`."""
        epoch, item = cursor
        return epoch + item / len(self.samples)

    def enter(self, cursor: Cursor, stage: int) -> Cursor:
        """See `Source`: there is one stage only."""
        return cursor
