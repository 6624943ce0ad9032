"""Order is a pure function of seed and cursor: every pass visits everything once, in its own order."""

from collections import Counter

import numpy as np
import pytest

from unmask.batches import sources
from unmask.batches.batch import Sample
from unmask.batches.document_sentences import DocumentSentencesSettings
from unmask.batches.frame import Frame
from unmask.batches.sentence_pairs import SentencePairsSettings
from unmask.batches.sources import CorpusSource, ExampleSource
from unmask.errors import UserError

FRAME = Frame(2, 3)


def corpus_source(written, seed=0):
    documents = written(np.random.default_rng(1).integers(1, 9, (60, 3)))
    return CorpusSource(documents, DocumentSentencesSettings(length=64).build(FRAME), seed=seed)


def example_source(written, seed=0):
    sizes = np.random.default_rng(1).integers(3, 9, 60)
    samples = [Sample(key=(), ids=np.full(size, number), segments=np.zeros(size)) for number, size in enumerate(sizes)]
    return ExampleSource(samples, seed=seed)


@pytest.fixture(params=[corpus_source, example_source])
def make(request, written, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK_TOKENS", 130)  # some ten documents
    return lambda seed=0: request.param(written, seed)


def identity(sample):
    return sample.key, tuple(sample.ids)


def texts(samples):
    return [tuple(sample.ids) for sample in samples]


def test_take_is_pure(make):
    source, other = make(), make()
    cursor = source.start
    for _ in range(12):
        samples, after = source.take(cursor, tokens=70)
        other.take((5, 0, 0)[: len(cursor)], tokens=300)  # something else in between
        again, same = other.take(cursor, tokens=70)
        assert same == after
        assert list(map(identity, samples)) == list(map(identity, again))
        cursor = after


def test_each_pass_visits_everything_once_in_another_order(make):
    source = make()
    samples, cursor = source.take(source.start, sequences=60 * 3)
    passes = [texts(samples[start : start + 60]) for start in (0, 60, 120)]
    assert source.passes(cursor) == 3
    assert Counter(passes[0]) == Counter(passes[1]) == Counter(passes[2])
    assert max(Counter(passes[0]).values()) == 1
    assert passes[0] != passes[1] != passes[2] != passes[0]
    assert [sample.key[0] for sample in samples] == [0] * 60 + [1] * 60 + [2] * 60
    assert len({sample.key for sample in samples}) == 180
    assert texts(make(seed=1).take(source.start, sequences=60)[0]) != passes[0]


@pytest.mark.parametrize("limit", [1, 7, 20, 61, 150, 1000])
def test_limits(make, limit):
    source = make()
    samples, cursor = source.take(source.start, tokens=limit)
    following = source.take(cursor, sequences=1)[0][0]
    taken = sum(map(len, samples))
    assert taken <= limit or len(samples) == 1
    assert taken + len(following) > limit
    samples, _ = source.take(source.start, sequences=limit)
    assert len(samples) == limit


def test_any_cursor_resumes_with_the_same_samples(make):
    source = make()
    whole, _ = source.take(source.start, sequences=150)
    cursor, taken, sizes = source.start, [], np.random.default_rng(3)
    last = 0.0
    while len(taken) < 150:
        samples, cursor = make().take(tuple(cursor), sequences=int(sizes.integers(1, 9)))  # a new process each time
        taken += samples
        assert last < source.passes(cursor)
        last = source.passes(cursor)
    assert list(map(identity, taken))[:150] == list(map(identity, whole))


@pytest.mark.parametrize(
    ("lengths", "settings", "message"),
    [
        ([[3]] * 5, SentencePairsSettings(second="next"), "no sample can be cut from the 5 documents"),
        ([], DocumentSentencesSettings(), "no sample can be cut from the 0 documents"),
        ([], SentencePairsSettings(), "only one document"),
    ],
)
def test_D9_a_corpus_without_samples_is_refused_and_no_endless_loop(written, lengths, settings, message):
    source = CorpusSource(written(lengths), settings.build(FRAME), seed=0)
    with pytest.raises(UserError, match=message):
        source.take(source.start, tokens=100)


def test_D9_no_examples_are_refused():
    with pytest.raises(UserError, match="no examples"):
        ExampleSource([], seed=0)


def test_blocks_without_samples_are_passed_over(written, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK_TOKENS", 3)
    documents = written([[3]] * 20 + [[3, 3]])  # only the last one gives a pair
    source = CorpusSource(documents, SentencePairsSettings(second="next").build(FRAME), seed=0)
    samples, cursor = source.take(source.start, sequences=3)
    assert [sample.key[0] for sample in samples] == [0, 1, 2]
    assert source.passes(cursor) > 2
