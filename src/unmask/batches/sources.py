"""Where samples come from, and in which order.

In: a corpus's documents and a layout (how samples are cut from documents), or a list of ready samples.
Out: samples, each named by a key; an order that is a pure function of the seed and of a cursor, so that a checkpoint
stores three integers and no queue.

A pass over a corpus visits its documents in a seeded permutation, a block of them at a time; the samples of a block
are cut together and shuffled together. As a block holds documents from everywhere, this is close to a global
shuffle of samples, and needs no table of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from unmask.batches.batch import Key, Sample
from unmask.batches.chance import generator, number, permuted
from unmask.corpus.corpus import Documents
from unmask.errors import UserError

Cursor = tuple[int, ...]
"""Where the order stands; opaque to the loop, and all the data state of a checkpoint."""

BLOCK_TOKENS = 1_000_000
"""About how many tokens of text a block holds."""


class Source(Protocol):
    """Samples in an endless, seeded order. Both methods are pure."""

    start: Cursor

    def take(
        self, cursor: Cursor, *, tokens: int | None = None, sequences: int | None = None
    ) -> tuple[list[Sample], Cursor]:
        """Return the next samples, at most `tokens` tokens (at least one sample) or `sequences`, and the new cursor."""
        ...

    def passes(self, cursor: Cursor) -> float:
        """How many passes over the data a cursor stands for."""
        ...


class Layout(Protocol):
    """Cuts samples from documents (an idea of a paper: see `sentence_pairs`)."""

    def cut(self, documents: Documents, indices: Sequence[int], rng: np.random.Generator) -> list[Sample]:
        """Return all samples of these documents, in order, with empty keys. Pure but for `rng`."""
        ...


class CorpusSource:
    """Samples cut from documents. Cursor and key: (pass, block, item)."""

    start: Cursor = (0, 0, 0)

    def __init__(self, documents: Documents, layout: Layout, *, seed: int) -> None:
        self.documents = documents
        self.layout = layout
        self.seed = seed
        mean = max(1, documents.num_tokens // max(1, len(documents)))
        self.per_block = max(1, min(len(documents), BLOCK_TOKENS // mean))
        self.num_blocks = -(-len(documents) // self.per_block)
        self._block = lru_cache(maxsize=2)(self._cut)

    def take(
        self, cursor: Cursor, *, tokens: int | None = None, sequences: int | None = None
    ) -> tuple[list[Sample], Cursor]:
        """See `Source`.

        Raises:
            UserError: the layout finds no sample in the whole corpus.
        """
        epoch, block, item = cursor
        taken: list[Sample] = []
        room = tokens if tokens is not None else sequences
        assert room is not None, "a batch is counted in tokens or in sequences"
        empty = 0
        while True:
            samples = self._block(epoch, block)
            empty = 0 if samples else empty + 1
            if empty >= 2 * self.num_blocks:  # the order differs: the only block with samples may be first, then last
                raise UserError(
                    f"no sample can be cut from the {len(self.documents)} documents of the corpus",
                    remedy="the text is too short for this layout: add text, or choose another one with "
                    "--set layout.kind=document_sentences --set objective.next_sentence=false",
                )
            while item < len(samples):
                size = len(samples[item]) if tokens is not None else 1
                if size > room and taken:
                    return taken, (epoch, block, item)
                taken.append(samples[item])
                room -= size
                item += 1
                if room <= 0:
                    return taken, (epoch, block, item)
            item = 0
            block += 1
            if block == self.num_blocks:
                epoch, block = epoch + 1, 0

    def passes(self, cursor: Cursor) -> float:
        """See `Source`."""
        epoch, block, item = cursor
        return epoch + (block + item / max(1, len(self._block(epoch, block)))) / self.num_blocks

    def _cut(self, epoch: int, block: int) -> list[Sample]:
        first = block * self.per_block
        order = number(self.seed, "order", epoch)
        indices = [
            permuted(place, len(self.documents), order)
            for place in range(first, min(first + self.per_block, len(self.documents)))
        ]
        rng = generator(self.seed, "layout", epoch, block)
        samples = self.layout.cut(self.documents, indices, rng)
        return [samples[at].named((epoch, block, item)) for item, at in enumerate(rng.permutation(len(samples)))]


class ExampleSource:
    """Ready samples (labelled examples), shuffled anew in each pass. Cursor: (pass, item); key: (pass, example)."""

    start: Cursor = (0, 0)

    def __init__(self, samples: Sequence[Sample], *, seed: int) -> None:
        if not samples:
            raise UserError("there are no examples to train on")
        self.samples = samples
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
            example = permuted(item, len(self.samples), number(self.seed, "order", epoch))
            sample = self.samples[example]
            size = len(sample) if tokens is not None else 1
            if size > room and taken:
                break
            key: Key = (epoch, example)
            taken.append(sample.named(key))
            room -= size
            item += 1
        return taken, (epoch, item)

    def passes(self, cursor: Cursor) -> float:
        """See `Source`."""
        epoch, item = cursor
        return epoch + item / len(self.samples)
