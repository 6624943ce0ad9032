"""From documents to training samples: the pipeline of each stage of a run, and their sequence, the curriculum.

Input: the stages and the pipeline (`Feed`) of each. Output: one source of samples, whose order goes on where a stage
begins, in the corpus that this stage reads; a function that prepares each sample as its stage asks for; and the fixed
evaluation batches, which are those of the last stage.

A masking rate that moves from `rate` to `final_rate` does so over all consecutive stages with the same masking: over
the whole run if no stage has its own, and over a stage alone if its masking differs from its neighbors'.

A pipeline has a layout, then a masking, then the counts of each objective.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING

from unmask.data.batches.batch import Batch, Prepare, Sample, collate
from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import LayoutSettings
from unmask.data.batches.masking import MaskingSettings, NoMaskingSettings
from unmask.data.batches.rng import SampleRng
from unmask.data.batches.samples import Samples
from unmask.data.batches.sources import CorpusSource, Cursor, Source, Stage, TextTooShortError
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.support.choices import SummaryKind

if TYPE_CHECKING:
    from unmask.data.corpus.corpus import Documents

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
    summary: SummaryKind | None = None

    def source(self, documents: Documents, block_tokens: int | None = None) -> Source:
        """Return the samples of documents in seeded order; see `CorpusSource` for `block_tokens`."""
        return self._source(self.layout, documents, block_tokens)

    def prepare(self) -> Prepare:
        """Return a function that masks tokens, differently in each epoch, and counts targets.

        What it draws for a sample depends only on the seed and the sample's key.
        """
        tokenizer = self.tokenizer
        masking = self.masking.build(
            vocabulary=tokenizer.size,
            mask=tokenizer.mask,
            special=tokenizer.special_ids,
            begins=tokenizer.begins_word,
        )

        def prepare(samples: Sequence[Sample]) -> list[Sample]:
            rng = SampleRng(self.seed, "masking", [sample.key for sample in samples])
            return list(map(self.count, masking(samples, rng)))

        return prepare

    def heldout(self, documents: Documents, tokens: int) -> list[Batch]:
        """Return fixed batches with fixed masks: at most one epoch, at most about `tokens` tokens.

        They are masked at the final rate, so that the same measure applies throughout the run and to the finished
        model. If there is too little text for the layout, or nothing in it to predict, there are none.
        """
        if not len(documents):
            return []
        with suppress(TextTooShortError):
            batches = self._heldout(documents, tokens)
            if any(count for batch in batches for count in batch.counts.values()):
                return batches
        return []

    def _heldout(self, documents: Documents, tokens: int) -> list[Batch]:
        layout = self.layout.heldout(min(tokens, documents.num_tokens), BATCH_TOKENS)
        source, prepare = self._source(layout, documents, tokens), self.prepare()
        batches, cursor, taken = [], source.start, 0
        while taken < tokens and source.epochs(cursor) < 1:
            read, cursor = source.take(cursor, tokens=BATCH_TOKENS)
            samples = [sample for sample in read if sample.key[0] == 0]
            if not samples:  # the rest of the epoch contains none
                break
            batches.append(collate(prepare([sample.at(1.0) for sample in samples])))
            taken += sum(map(len, samples))
        return batches

    def _source(self, layout: LayoutSettings, documents: Documents, block_tokens: int | None) -> Source:
        frame = Frame.of(self.tokenizer, self.summary)
        return layout.source(documents, frame, seed=self.seed, block_tokens=block_tokens)


@dataclass(frozen=True)
class Curriculum:
    """See the module.

    Attributes:
        stages: the stages in order.
        feeds: the pipeline of each; seed, tokenizer and framing are the same in all.
    """

    stages: Sequence[Stage]
    feeds: Sequence[Feed]

    def source(self, documents: Documents, others: Mapping[int, Documents] | None = None) -> Source:
        """Return the samples of documents in seeded order.

        Args:
            documents: the documents.
            others: those that stages read instead, by stage.
        """
        first = self.feeds[0]
        if len(self.feeds) == 1:
            return first.source(documents)
        read = [(others or {}).get(stage, documents) for stage in range(len(self.stages))]
        corpora = {id(each): each for each in read}
        frame = Frame.of(first.tokenizer, first.summary)
        layouts = [(stage, feed.layout) for stage, feed in zip(self.stages, self.feeds, strict=True)]
        sources = [CorpusSource(corpus, layouts, frame, seed=first.seed) for corpus in corpora.values()]
        return StagedSource(sources, [[*corpora].index(id(each)) for each in read]) if others else sources[0]

    def prepare(self) -> Prepare:
        """Return a function that prepares samples as `Feed.prepare` of their stages does."""
        prepared = [feed.prepare() for feed in self.feeds]
        spans = self._spans()

        def at(sample: Sample) -> Sample:
            begin, end = spans[sample.stage]
            done = (sample.done - begin) / (end - begin)  # steps are rounded, so that it may be slightly outside
            return sample.at(min(1.0, max(0.0, done)))

        def prepare(samples: Sequence[Sample]) -> list[Sample]:
            of_stages = groupby(samples, lambda sample: sample.stage)
            return [one for stage, group in of_stages for one in prepared[stage]([at(sample) for sample in group])]

        return prepare

    def heldout(self, documents: Documents, tokens: int) -> list[Batch]:
        """Return the evaluation batches of the last stage; see `Feed.heldout`."""
        return self.feeds[-1].heldout(documents, tokens)

    def _spans(self) -> list[tuple[float, float]]:
        """Return for each stage where its masking begins and ends, as fractions of the run."""
        *ends, _ = accumulate(stage.share for stage in self.stages)
        ends.append(1.0)
        begins = [0.0, *ends[:-1]]
        continued = [
            stage for stage, (feed, other) in enumerate(pairwise(self.feeds), 1) if feed.masking == other.masking
        ]
        for stage in continued:
            begins[stage] = begins[stage - 1]
        for stage in reversed(continued):
            ends[stage - 1] = ends[stage]
        return list(zip(begins, ends, strict=True))


class StagedSource:
    """Samples of several corpora, of which each stage reads one. Cursor: that of each corpus, and the stage.

    A stage that reads a corpus again continues where an earlier one has stopped.

    Args:
        sources: the samples of each corpus, with all stages.
        chosen: the index of the source that each stage reads.
    """

    streams = 0
    epoch = None

    def __init__(self, sources: Sequence[CorpusSource], chosen: Sequence[int]) -> None:
        self.sources, self.chosen = sources, chosen
        self.stages = sources[0].stages
        self.start: Cursor = (*(number for source in sources for number in source.start), 0)

    def take(
        self, cursor: Cursor, *, tokens: int | None = None, sequences: int | None = None
    ) -> tuple[Samples, Cursor]:
        """See `Source`; the index of their corpus begins the keys of samples."""
        corpus = self.chosen[cursor[-1]]
        taken, after = self.sources[corpus].take(self._inner(cursor, corpus), tokens=tokens, sequences=sequences)
        return taken.map(lambda sample: sample.named((corpus, *sample.key))), self._moved(cursor, corpus, after)

    def epochs(self, cursor: Cursor) -> float:
        """See `Source`: the number of tokens read, of all corpora, as a multiple of their number."""
        sizes = [source.documents.num_tokens for source in self.sources]
        read = [source.epochs(self._inner(cursor, corpus)) for corpus, source in enumerate(self.sources)]
        return sum(map(operator.mul, read, sizes)) / sum(sizes)

    def enter(self, cursor: Cursor, stage: int) -> Cursor:
        """See `Source`."""
        corpus = self.chosen[stage]
        after = self.sources[corpus].enter(self._inner(cursor, corpus), stage)
        return (*self._moved(cursor, corpus, after)[:-1], stage)

    def _inner(self, cursor: Cursor, corpus: int) -> Cursor:
        size = len(self.sources[0].start)
        return cursor[corpus * size : (corpus + 1) * size]

    def _moved(self, cursor: Cursor, corpus: int, after: Cursor) -> Cursor:
        return (*cursor[: corpus * len(after)], *after, *cursor[(corpus + 1) * len(after) :])
