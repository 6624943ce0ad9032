"""Text to what a model learns from: layout, then masking, then each objective's counts.

In: the documents of a corpus. Out: a source of samples, what prepares each, and fixed batches to evaluate on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unmask.batches.batch import Batch, Sample, collate
from unmask.batches.frame import Frame
from unmask.batches.layout import LayoutSettings
from unmask.batches.masking import MaskingSettings
from unmask.batches.no_masking import NoMaskingSettings
from unmask.batches.rng import derive_rng
from unmask.batches.sources import Source
from unmask.corpus.corpus import Documents
from unmask.tokenizers.tokenizer import Summary, Tokenizer

BATCH_TOKENS = 8192
"""Tokens of a batch to evaluate on."""


@dataclass(frozen=True)
class Feed:
    """One way from documents to samples.

    Attributes:
        layout, masking, seed: the recipe's.
        tokenizer: whose ids the documents hold.
        count: lets the objectives count their targets in a sample (`Learner.prepare`).
        summary: how texts are framed (`BodySettings.pretraining`); None: as the tokenizer says.
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
        """Return what hides tokens, anew in each pass, and counts targets; chance comes from the sample's key alone."""
        words = self.tokenizer
        masking = self.masking.build(
            vocabulary=words.size, mask=words.mask, special=words.special_ids, begins=words.begins_word
        )

        def prepare(sample: Sample) -> Sample:
            return self.count(masking(sample, derive_rng(self.seed, "masking", *sample.key)))

        return prepare

    def heldout(self, documents: Documents, tokens: int) -> list[Batch]:
        """Return fixed batches with fixed masks: at most one pass, at most about `tokens` tokens.

        They are those of the last stage, and hidden at the last rate, wherever the run stands: one measure throughout,
        and that of the finished model.
        """
        if not len(documents):
            return []
        layout = self.layout.heldout(min(tokens, documents.num_tokens), BATCH_TOKENS)
        source, prepare = self._source(layout, documents, tokens), self.prepare()
        batches, cursor, taken = [], source.enter(source.start, len(source.stages) - 1), 0
        while taken < tokens and source.epochs(cursor) < 1:
            samples, cursor = source.take(cursor, tokens=BATCH_TOKENS)
            samples = [sample for sample in samples if sample.key[0] == 0]
            if not samples:  # the rest of the pass has none
                break
            batches.append(collate([prepare(sample.at(1.0)) for sample in samples]))
            taken += sum(map(len, samples))
        return batches

    def _source(self, layout: LayoutSettings, documents: Documents, block_tokens: int | None) -> Source:
        frame = Frame.of(self.tokenizer, self.summary)
        return layout.source(documents, frame, seed=self.seed, block_tokens=block_tokens)
