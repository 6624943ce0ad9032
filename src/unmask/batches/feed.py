"""Text to what a model learns from: layout, then masking, then each objective's counts.

In: the documents of a corpus. Out: a source of samples, what prepares each, and fixed batches to evaluate on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from unmask.batches.batch import Batch, Sample, collate
from unmask.batches.chance import generator
from unmask.batches.contiguous import ContiguousSettings, ContiguousSource
from unmask.batches.frame import Frame
from unmask.batches.layout import LayoutSettings
from unmask.batches.masking import MaskingSettings
from unmask.batches.no_masking import NoMaskingSettings
from unmask.batches.sources import CorpusSource, Source
from unmask.corpus.corpus import Documents
from unmask.tokenizers.tokenizer import Tokenizer

BATCH_TOKENS = 8192
"""Tokens of a batch to evaluate on."""
HELDOUT_WINDOWS = 8
"""How many windows each stream has at least, if there is text for them."""


@dataclass(frozen=True)
class Feed:
    """One way from documents to samples.

    Attributes:
        layout, masking, seed: the recipe's.
        tokenizer: whose ids the documents hold.
        count: lets the objectives count their targets in a sample (`Learner.prepare`).
    """

    layout: LayoutSettings
    masking: MaskingSettings | NoMaskingSettings
    seed: int
    tokenizer: Tokenizer
    count: Callable[[Sample], Sample]

    def source(self, documents: Documents, block_tokens: int | None = None) -> Source:
        """Return the samples of documents in seeded order; see `CorpusSource` for `block_tokens`."""
        frame = Frame.of(self.tokenizer)
        if isinstance(self.layout, ContiguousSettings):
            assert self.layout.length is not None
            return ContiguousSource(documents, self.layout.length, self.layout.streams, frame, seed=self.seed)
        return CorpusSource(documents, self.layout, frame, seed=self.seed, block_tokens=block_tokens)

    def prepare(self) -> Callable[[Sample], Sample]:
        """Return what hides tokens, anew in each pass, and counts targets; chance comes from the sample's key alone."""
        words = self.tokenizer
        masking = self.masking.build(
            vocabulary=words.size, mask=words.mask, special=words.special_ids, begins=words.begins_word
        )

        def prepare(sample: Sample) -> Sample:
            return self.count(masking(sample, generator(self.seed, "masking", *sample.key)))

        return prepare

    def heldout(self, documents: Documents, tokens: int) -> list[Batch]:
        """Return fixed batches with fixed masks: at most one pass, at most about `tokens` tokens.

        They are those of the last stage, and hidden at the last rate, wherever the run stands: one measure throughout,
        and that of the finished model.
        """
        if not len(documents):
            return []
        source, prepare = self._heldout_source(documents, tokens), self.prepare()
        batches, cursor, taken = [], source.enter(source.start, len(source.stages) - 1), 0
        while taken < tokens and source.passes(cursor) < 1:
            samples, cursor = source.take(cursor, tokens=BATCH_TOKENS)
            samples = [sample for sample in samples if sample.key[0] == 0]
            if not samples:  # the rest of the pass has none
                break
            batches.append(collate([prepare(sample.at(1.0)) for sample in samples]))
            taken += sum(map(len, samples))
        return batches

    def _heldout_source(self, documents: Documents, tokens: int) -> Source:
        """Return what the fixed batches are taken from: few streams, so that each is many windows long."""
        if not isinstance(self.layout, ContiguousSettings):
            return self.source(documents, tokens)
        length = self.layout.all_stages[0].length
        affordable = min(BATCH_TOKENS // length, min(tokens, documents.num_tokens) // (HELDOUT_WINDOWS * length))
        streams = max(1, min(self.layout.streams, affordable))
        return replace(self, layout=msgspec.structs.replace(self.layout, streams=streams)).source(documents)
