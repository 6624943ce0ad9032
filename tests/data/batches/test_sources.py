"""Order is a pure function of seed and cursor: each epoch visits everything once, in its own order."""

from collections import Counter

import numpy as np
import pytest

from unmask.data.batches import sources
from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import DocumentSentencesSettings, FullSentencesSettings
from unmask.data.batches.sentence_pairs import SentencePairsSettings
from unmask.data.batches.sources import CorpusSource, ExampleSource, Stage
from unmask.support.errors import UserError

FRAME = Frame(2, 3)


def corpus_source(written, seed=0):
    documents = written(np.random.default_rng(1).integers(1, 9, (60, 3)))
    return DocumentSentencesSettings(length=64).source(documents, FRAME, seed=seed)


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
        other.take((5, 0, 0, 0)[: len(cursor)], tokens=300)  # something else in between
        again, same = other.take(cursor, tokens=70)
        assert same == after
        assert list(map(identity, samples)) == list(map(identity, again))
        cursor = after


def test_each_epoch_visits_everything_once_in_another_order(make):
    source = make()
    samples, cursor = source.take(source.start, sequences=60 * 3)
    epochs = [texts(samples[start : start + 60]) for start in (0, 60, 120)]
    assert source.epochs(cursor) == 3
    assert Counter(epochs[0]) == Counter(epochs[1]) == Counter(epochs[2])
    assert max(Counter(epochs[0]).values()) == 1
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert [sample.key[0] for sample in samples] == [0] * 60 + [1] * 60 + [2] * 60
    assert len({sample.key for sample in samples}) == 180
    assert texts(make(seed=1).take(source.start, sequences=60)[0]) != epochs[0]


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
        assert last < source.epochs(cursor)
        last = source.epochs(cursor)
    assert list(map(identity, taken))[:150] == list(map(identity, whole))


LAYOUTS = {
    "full_sentences": FullSentencesSettings(length=24),
    "swapped": SentencePairsSettings(length=24, second="swapped"),
    "random": SentencePairsSettings(length=24, second="random"),
    "next, some single": SentencePairsSettings(length=24, second="next", single_probability=0.3),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_continues_with_the_same_samples_across_blocks(written, layout):
    documents = written(np.random.default_rng(1).integers(1, 9, (60, 3)))

    def source():
        return LAYOUTS[layout].source(documents, FRAME, seed=0, block_tokens=130)  # some ten documents

    def content(sample):
        labels = {name: value.tolist() for name, value in sample.labels.items()}
        return sample.key, sample.ids.tolist(), sample.segments.tolist(), labels

    assert source().num_blocks > 4
    taken, cursor, sizes = [], source().start, np.random.default_rng(3)
    while cursor[0] < 2:
        samples, cursor = source().take(cursor, tokens=int(sizes.integers(1, 60)))  # a new process each time
        taken += samples
    whole, _ = source().take(source().start, sequences=len(taken))
    assert list(map(content, taken)) == list(map(content, whole))
    if layout == "swapped":
        for sample in taken:
            first, second = (sample.ids[(sample.segments == number) & (sample.ids >= 10)] for number in (0, 1))
            assert (first.max() < second.min()) == (sample.labels["sentence_order"].item() == 0)
    if layout == "full_sentences":
        read = Counter(int(id) for sample in taken if sample.key[0] == 0 for id in sample.ids if id >= 10)
        assert sorted(read) == list(range(10, 10 + documents.num_tokens))
        assert set(read.values()) == {1}


class KeepsTheItem(CorpusSource):
    """Continues in the same block, as if it were cut the same way."""

    def enter(self, cursor, stage):
        return (*cursor[:3], stage)


class RestartsTheBlock(CorpusSource):
    """Reads the block of the change again."""

    def enter(self, cursor, stage):
        return (*cursor[:2], 0, stage)


class SkipsABlock(CorpusSource):
    """Skips an unread block."""

    def enter(self, cursor, stage):
        return super().enter((*cursor[:2], 1, cursor[3]), stage)


STAGED = [(Stage(share=0.5, length=length), DocumentSentencesSettings(length=length)) for length in (12, 24)]
"""Two stages of different length."""


def read_an_epoch(source, first):
    """Return samples of the first stage, then of the second up to the epoch's end, and the cursor of the change."""
    read, cursor = source.take(source.start, sequences=first) if first else ([], source.start)
    taken, changed = [*read], cursor
    cursor = source.enter(cursor, 1)
    while cursor[0] == 0 and source.epochs(cursor) < 1:
        more, cursor = source.take(cursor, sequences=1)
        taken += more
    return [sample for sample in taken if sample.key[0] == 0], changed


def check_a_change(source, first):
    """Check that nothing is read twice, and nothing is skipped except the rest of the block of the change."""
    documents = source.documents
    samples, (_, block, item, _) = read_an_epoch(source, first)
    used = Counter(int(token) for sample in samples for token in sample.ids[1:-1])
    assert max(used.values()) == 1
    assert max(map(len, samples[:first]), default=0) <= 12 < max(map(len, samples[first:]), default=24)
    assert len({sample.key for sample in samples}) == len(samples)
    assert [sample.stage for sample in samples] == [0] * first + [1] * (len(samples) - first)
    current = source._block(0, 0, block)
    rest = [int(token) for sample in current[item:] for token in sample.ids[1:-1]] if item else []
    everything = {int(token) for number in range(len(documents)) for s in documents.sentences(number) for token in s}
    assert everything - used.keys() == set(rest)


@pytest.mark.parametrize("kind", [CorpusSource, KeepsTheItem, RestartsTheBlock, SkipsABlock])
def test_a_change_of_length_skips_the_rest_of_one_block_and_repeats_nothing(written, monkeypatch, kind):
    monkeypatch.setattr(sources, "BLOCK_TOKENS", 130)  # some ten documents
    documents = written(np.random.default_rng(1).integers(1, 9, (60, 3)))
    source = kind(documents, STAGED, FRAME, seed=0)
    whole = len(source._block(0, 0, 0))
    moments = [0, 1, whole - 1, whole, whole + 1, 3 * whole, 4 * whole]
    if kind is CorpusSource:
        for first in moments:
            check_a_change(source, first)
        return
    with pytest.raises(AssertionError):
        for first in moments:
            check_a_change(source, first)


def test_entering_a_stage_is_pure_and_keeps_a_cursor_that_is_in_it(written, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK_TOKENS", 130)
    documents = written(np.random.default_rng(1).integers(1, 9, (60, 3)))
    source = CorpusSource(documents, STAGED, FRAME, seed=0)
    last = source.num_blocks - 1
    assert source.enter((3, 1, 7, 1), 1) == (3, 1, 7, 1)
    assert source.enter((3, 1, 7, 0), 1) == (3, 2, 0, 1)
    assert source.enter((3, 1, 0, 0), 1) == (3, 1, 0, 1)
    assert source.enter((3, last, 7, 0), 1) == (4, 0, 0, 1)
    assert source.enter((3, 1, 7, 1), 0) == (3, 2, 0, 0)
    assert example_source(written).enter((3, 7), 0) == (3, 7)


@pytest.mark.parametrize(
    ("lengths", "settings", "message"),
    [
        ([[3]] * 5, SentencePairsSettings(length=128, second="next"), "no sample can be cut from the 5 documents"),
        ([], DocumentSentencesSettings(length=128), "no sample can be cut from the 0 documents"),
        ([], SentencePairsSettings(length=128), "only one document"),
    ],
)
def test_D9_a_corpus_without_samples_is_refused_and_no_endless_loop(written, lengths, settings, message):
    source = settings.source(written(lengths), FRAME, seed=0)
    with pytest.raises(UserError, match=message):
        source.take(source.start, tokens=100)


def test_D9_no_examples_are_refused():
    with pytest.raises(UserError, match="no examples"):
        ExampleSource([], seed=0)


def test_blocks_without_samples_are_skipped(written, monkeypatch):
    monkeypatch.setattr(sources, "BLOCK_TOKENS", 3)
    documents = written([[3]] * 20 + [[3, 3]])  # only the last one gives a pair
    source = SentencePairsSettings(length=128, second="next").source(documents, FRAME, seed=0)
    samples, cursor = source.take(source.start, sequences=3)
    assert [sample.key[0] for sample in samples] == [0, 1, 2]
    assert source.epochs(cursor) > 2
