"""From documents to training samples: layout, then masking, then the counts of each objective.

Input: the documents of a corpus. Output: a source of samples, a function that prepares each, and fixed evaluation
batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unmask.data.batches.batch import Batch, Sample, collate
from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import LayoutSettings
from unmask.data.batches.masking import MaskingSettings
from unmask.data.batches.no_masking import NoMaskingSettings
from unmask.data.batches.rng import derive_rng
from unmask.data.batches.sources import Source
from unmask.data.corpus.corpus import Documents
from unmask.data.tokenizers.tokenizer import Summary, Tokenizer

BATCH_TOKENS = 8192
"""Tokens per evaluation batch."""


@dataclass(frozen=True)
class Feed:
    """The pipeline from documents to samples.

    Attributes:
        layout, masking, seed: settings of the recipe.
        tokenizer: tokenizer that encoded the documents.
        count: adds the objectives' numbers of targets to a sample (`Learner.prepare`).
        summary: how texts are framed (`BodySettings.pretraining`); None: as set by the tokenizer.
    """

    layout: LayoutSettings
    masking: MaskingSettings | NoMaskingSettings
    seed: int
    tokenizer: Tokenizer
    count: Callable[[Sample], Sample]
    summary: Summary | None = None

    def source(self, documents: Documents, block_tokens: int | None = None) -> Source:
        """Return the samples of documents in seeded order; see `CorpusSource` for `block_tokens`."""
        return self._source(self.layout, documents, block_tokens)

    def prepare(self) -> Callable[[Sample], Sample]:
        """Return a function that masks tokens, differently in each epoch, and counts targets.

        Its randomness depends only on the seed and the sample's key.
        """
        tokenizer = self.tokenizer
        masking = self.masking.build(
            vocabulary=tokenizer.size,
            mask=tokenizer.mask,
            special=tokenizer.special_ids,
            begins=tokenizer.begins_word,
        )

        def prepare(sample: Sample) -> Sample:
            return self.count(masking(sample, derive_rng(self.seed, "masking", *sample.key)))

        return prepare

    def heldout(self, documents: Documents, tokens: int) -> list[Batch]:
        """Return fixed batches with fixed masks: at most one epoch, at most about `tokens` tokens.

        They are masked at the final rate, so that the same measure applies throughout the run and to the finished
        model.
        """
        if not len(documents):
            return []
        layout = self.layout.heldout(min(tokens, documents.num_tokens), BATCH_TOKENS)
        source, prepare = self._source(layout, documents, tokens), self.prepare()
        batches, cursor, taken = [], source.start, 0
        while taken < tokens and source.epochs(cursor) < 1:
            samples, cursor = source.take(cursor, tokens=BATCH_TOKENS)
            samples = [sample for sample in samples if sample.key[0] == 0]
            if not samples:  # the rest of the epoch contains none
                break
            batches.append(collate([prepare(sample.at(1.0)) for sample in samples]))
            taken += sum(map(len, samples))
        return batches

    def _source(self, layout: LayoutSettings, documents: Documents, block_tokens: int | None) -> Source:
        frame = Frame.of(self.tokenizer, self.summary)
        return layout.source(documents, frame, seed=self.seed, block_tokens=block_tokens)
