"""The pipelines of several stages: one order, each sample prepared by its stage, masking rates that move."""

import numpy as np
import pytest

from unmask.data.batches import sources
from unmask.data.batches.curriculum import Curriculum, Feed
from unmask.data.batches.layout import DocumentSentencesSettings
from unmask.data.batches.masking import TokenMaskingSettings
from unmask.data.batches.sentence_pairs import SentencePairsSettings
from unmask.data.batches.sources import CorpusSource, Stage

MOVING = TokenMaskingSettings(rate=0.8, final_rate=0.2)
SHORT, PAIRS = DocumentSentencesSettings(length=16), SentencePairsSettings(length=48)


def counted(name):
    return lambda sample: sample.add(counts={name: len(sample.labels["masked"])})


@pytest.fixture
def make(tokenizer):
    """Makes a curriculum of stages, each given by its share, layout and masking."""

    def curriculum(*given):
        stages = [Stage(share=share, length=layout.length) for share, layout, _ in given]
        feeds = [
            Feed(layout, masking, 0, tokenizer, counted(str(index))) for index, (_, layout, masking) in enumerate(given)
        ]
        return Curriculum(stages, feeds)

    return curriculum


def equal(first, second):
    return (first.key, first.counts) == (second.key, second.counts) and np.array_equal(first.ids, second.ids)


def test_one_stage_gives_the_samples_of_its_feed(make, corpus):
    curriculum = make((1.0, PAIRS, MOVING))
    feed = curriculum.feeds[0]
    ours, theirs = curriculum.source(corpus.train), feed.source(corpus.train)
    (samples, cursor), (expected, end) = (one.take(one.start, sequences=50) for one in (ours, theirs))
    assert cursor == end
    prepare, alone = curriculum.prepare(), feed.prepare()
    for done in (0.0, 0.3, 1.0):
        ours_made, theirs_made = prepare([it.at(done) for it in samples]), alone([it.at(done) for it in expected])
        assert all(map(equal, ours_made, theirs_made))


def test_equal_stages_give_the_samples_of_one(make, corpus):
    """Apart from the rest of the block where the second begins."""
    curriculum, feed = make((0.5, PAIRS, MOVING), (0.5, PAIRS, MOVING)), make((1.0, PAIRS, MOVING)).feeds[0]
    source, alone = curriculum.source(corpus.train), feed.source(corpus.train)
    for stage in range(2):
        samples, _ = source.take(source.enter(source.start, stage), sequences=20)
        expected, _ = alone.take(alone.start, sequences=20)
        ours, theirs = ([it.at(0.5) for it in of] for of in (samples, expected))
        for sample, other in zip(curriculum.prepare()(ours), feed.prepare()(theirs), strict=True):
            assert sample.ids.tolist() == other.ids.tolist()


def test_the_order_goes_on_where_a_stage_begins(make, corpus, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK_TOKENS", 300)
    source = make((0.5, SHORT, MOVING), (0.5, PAIRS, MOVING)).source(corpus.train)
    assert isinstance(source, CorpusSource)
    assert source.num_blocks > 2
    first, cursor = source.take(source.start, sequences=3)
    second, _ = source.take(source.enter(cursor, 1), sequences=3)
    assert {sample.stage for sample in first} == {0}
    assert {sample.stage for sample in second} == {1}
    assert not any("next_sentence" in sample.labels for sample in first)
    assert all("next_sentence" in sample.labels for sample in second)
    assert {sample.key[:2] for sample in first} == {(0, 0)}
    assert {sample.key[:2] for sample in second} == {(0, 1)}


def test_each_sample_is_prepared_by_its_stage_alone(make, corpus):
    curriculum = make((0.5, SHORT, MOVING), (0.5, PAIRS, TokenMaskingSettings(rate=0.3)))
    source, prepare = curriculum.source(corpus.train), curriculum.prepare()
    for stage in range(2):
        samples, _ = source.take(source.enter(source.start, stage), sequences=10)
        assert all(list(sample.counts) == [str(stage)] for sample in prepare(samples))
        expected = curriculum.feeds[stage].prepare()([sample.at(0.0) for sample in samples])
        assert all(map(equal, prepare([sample.at(stage) for sample in samples]), expected))


def rates(curriculum, corpus, stage, done):
    """Return the share of masked tokens among the tokens of a stage's samples."""
    source, prepare = curriculum.source(corpus.train), curriculum.prepare()
    samples, _ = source.take(source.enter(source.start, stage), sequences=30)
    prepared = prepare([sample.at(done) for sample in samples])
    return sum(len(sample.labels["masked"]) for sample in prepared) / sum(map(len, prepared))


CONSTANT = TokenMaskingSettings(rate=0.3)


@pytest.mark.parametrize(
    ("maskings", "spans"),
    [
        ((MOVING, MOVING, MOVING), [(0, 1), (0, 1), (0, 1)]),  # over the whole run
        ((MOVING, CONSTANT, MOVING), [(0, 0.5), (0.5, 0.75), (0.75, 1)]),  # over each stage alone
        ((CONSTANT, MOVING, MOVING), [(0, 0.5), (0.5, 1), (0.5, 1)]),  # over consecutive stages
        ((MOVING, MOVING, CONSTANT), [(0, 0.75), (0, 0.75), (0.75, 1)]),
    ],
)
def test_a_rate_moves_over_the_consecutive_stages_of_its_masking(make, corpus, maskings, spans):
    curriculum = make(*zip((0.5, 0.25, 0.25), (SHORT, PAIRS, SHORT), maskings, strict=True))
    assert curriculum._spans() == spans
    for stage, ((begin, end), masking) in enumerate(zip(spans, maskings, strict=True)):
        for fraction in (0.0, 0.5, 1.0):
            expected = masking.rate_at(fraction)
            assert rates(curriculum, corpus, stage, begin + fraction * (end - begin)) == pytest.approx(
                expected, abs=0.06
            )
        assert rates(curriculum, corpus, stage, begin - 0.01) == pytest.approx(masking.rate, abs=0.06)


def test_heldout_batches_are_those_of_the_last_stage(make, corpus):
    curriculum = make((0.9, SHORT, CONSTANT), (0.1, PAIRS, MOVING))
    ours = curriculum.heldout(corpus.train, 10**9)
    alone = make((1.0, PAIRS, MOVING)).feeds[0].heldout(corpus.train, 10**9)
    assert [batch.keys for batch in ours] == [batch.keys for batch in alone]
    for batch, other in zip(ours, alone, strict=True):
        assert batch.tokens.ids.equal(other.tokens.ids)
        assert batch.counts == {"1": other.counts["0"]}
