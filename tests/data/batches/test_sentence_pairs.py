"""Half of the pairs are true, the others are from different documents, and no text is lost."""

from collections import Counter
from functools import cache

import numpy as np
import pytest

from unmask.data.batches.frame import Frame
from unmask.data.batches.sentence_pairs import MAX_DEBT, SentencePairsSettings, truncate_pair
from unmask.support.errors import UserError

from .conftest import cut_samples

CLS, SEP = 2, 3


def lengths_of(kind):
    rng = np.random.default_rng(0)
    return {
        "ordinary": [rng.integers(3, 40, rng.integers(2, 40)) for _ in range(400)],
        "single sentences": [rng.integers(3, 40, 1 if rng.random() < 0.9 else 12) for _ in range(3000)],
        "long sentences": [rng.integers(100, 400, rng.integers(1, 20)) for _ in range(400)],
        "pairs of sentences": [[20, 20] for _ in range(2000)],
        "two documents": [rng.integers(3, 40, 5000) for _ in range(2)],
    }[kind]


KINDS = ["ordinary", "single sentences", "long sentences", "pairs of sentences", "two documents"]


def cut(documents, rng=None, **settings):
    settings = {"length": 128} | settings
    layout = SentencePairsSettings(**settings)
    return cut_samples(layout, Frame(CLS, SEP), documents, range(len(documents)), rng or np.random.default_rng(0))


def halves(sample):
    """Return the two texts, without special tokens."""
    ends = np.flatnonzero(sample.ids == SEP)
    return sample.ids[1 : ends[0]], sample.ids[ends[0] + 1 : ends[1]]


def label(sample):
    return int(sample.labels["next_sentence"][0])


def home(documents):
    """Return a map from each token to its document; tokens are unique."""
    return {
        int(token): number
        for number in range(len(documents))
        for sentence in documents.sentences(number)
        for token in sentence
    }


@pytest.fixture(scope="module")
def samples_of(written):
    """Returns documents of a kind, and the samples that are cut from them."""

    @cache
    def make(kind):
        documents = written(lengths_of(kind))
        return documents, cut(documents)

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_the_pairs_are_random(samples_of, kind):
    labels = [label(sample) for sample in samples_of(kind)[1]]
    assert len(labels) > 400
    assert abs(np.mean(labels) - 0.5) <= 0.01


def test_half_of_the_pairs_are_random_in_epochs_of_a_corpus(corpus):
    source = SentencePairsSettings(length=48).source(corpus.train, Frame(CLS, SEP), seed=0)
    samples, cursor, labels = [], source.start, []
    while cursor[0] < 4:
        samples, cursor = source.take(cursor, sequences=1)
        labels.append(label(samples[0]))
    assert len(labels) > 700
    assert abs(np.mean(labels) - 0.5) <= 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_random_text_is_from_another_document_and_true_text_follows(samples_of, kind):
    documents, samples = samples_of(kind)
    homes = home(documents)
    for sample in samples:
        first, second = halves(sample)
        (of_first,) = {homes[int(token)] for token in first}
        (of_second,) = {homes[int(token)] for token in second}
        assert (of_first == of_second) == (label(sample) == 0)
        assert (np.diff(first) == 1).all()
        assert (np.diff(second) == 1).all()
        if label(sample) == 0:
            assert first[-1] < second[0]
            if len(sample) < 128:  # nothing was truncated
                assert first[-1] + 1 == second[0]


@pytest.mark.parametrize("second", ["random", "next"])
@pytest.mark.parametrize(("length", "number"), [(8, 30), (48, 60), (128, 100)])
@pytest.mark.parametrize("kind", KINDS[:3])
def test_texts_are_never_empty_and_fit(written, kind, length, number, second):
    samples = cut(written(lengths_of(kind)[:number]), length=length, second=second)
    assert len(samples) > 20
    for sample in samples:
        assert sample.ids[0] == CLS
        assert sample.ids[-1] == SEP
        assert len(sample) <= length
        first, last = halves(sample)
        assert len(first) > 0 < len(last)
        assert sample.segments.tolist() == [0] * (len(first) + 2) + [1] * (len(last) + 1)
        assert sample.positions["summary"].tolist() == [0]
        assert ("next_sentence" in sample.labels) == (second == "random")


@pytest.mark.parametrize(("probability", "share"), [(0.0, 0), (0.1, 0.1), (1.0, 1)])
def test_about_a_tenth_of_the_targets_are_shorter(written, probability, share):
    samples = cut(written([[1] * 125_000]), second="next", short_probability=probability)
    sizes = np.array([len(sample) for sample in samples])
    assert abs((sizes < 128).mean() - share) < 0.03
    shorter = sizes[sizes < 128]
    assert not share or (shorter.min() < 15 and abs(shorter.mean() - 66) < 12), "uniform from 2 to the capacity"


@pytest.mark.parametrize("second", ["random", "next"])
@pytest.mark.parametrize("seed", range(5))
def test_every_sentence_is_used_exactly_once_when_nothing_is_truncated(written, second, seed):
    """The sentences replaced by a random second text are put back, and are used as a first text."""
    documents = written([np.full(9, 2)] * 100)  # fewer tokens than fit into a sequence
    used = Counter()
    samples = cut(documents, np.random.default_rng(seed), second=second, short_probability=0.4, length=256)
    for sample in samples:
        first, following = halves(sample)
        true = second == "next" or label(sample) == 0
        used.update([*first.tolist(), *(following.tolist() if true else [])])
    tokens = Counter(home(documents).keys())
    assert not used - tokens
    missing = tokens - used  # single last sentences without a successor, or that could not be balanced
    assert all((token - 10) % 18 >= 16 for token in missing)
    assert second == "next" or sum(missing.values()) <= 2 * MAX_DEBT


def test_a_single_sentence_that_cannot_be_balanced_is_omitted(written):
    documents = written([[5]] * 100)
    assert cut(documents) == []
    with pytest.raises(UserError, match="document_sentences"):
        source = SentencePairsSettings(length=128).source(documents, Frame(CLS, SEP), seed=0)
        source.take(source.start, tokens=9)


def reference(first, second, capacity, rng):
    """truncate_seq_pair of google-research/bert, create_pretraining_data.py."""
    first, second = list(first), list(second)
    while len(first) + len(second) > capacity:
        longer = first if len(first) > len(second) else second
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()
    return first, second


def test_truncation_is_that_of_the_reference_code():
    rng = np.random.default_rng(0)
    for a in range(1, 13):
        for b in range(1, 13):
            for capacity in range(2, 26):
                mine = truncate_pair((0, 0, a), (1, 100, 100 + b), capacity, rng)
                theirs = reference(range(a), range(100, 100 + b), capacity, rng)
                assert [stop - start for _, start, stop in mine] == list(map(len, theirs)), (a, b, capacity)
                for number, (document, start, stop) in enumerate(mine):
                    assert document == number
                    assert 100 * number <= start < stop <= 100 * number + (a, b)[number]


def test_truncation_drops_at_both_ends_as_often_as_the_reference_code():
    rng = np.random.default_rng(0)
    whole = np.arange(40)
    mine = [truncate_pair((0, 0, 40), (1, 0, 3), 23, rng)[0][1] for _ in range(3000)]
    theirs = [int(reference(whole, whole[:3], 23, rng)[0][0]) for _ in range(3000)]
    assert abs(np.mean(mine) - np.mean(theirs)) < 0.25
    assert abs(np.std(mine) - np.std(theirs)) < 0.25
    assert abs(np.mean(mine) - 10) < 0.25, "half of the twenty dropped"


def test_a_single_document_is_refused(written):
    with pytest.raises(UserError, match=r"only one document; separate documents by blank lines.*document_sentences"):
        cut(written([[5, 5, 5]]))
    assert cut(written([[5, 5, 5]]), second="next")


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_the_pairs_are_swapped_and_all_are_neighbours(written, kind):
    documents = written(lengths_of(kind))
    homes, labels = home(documents), []
    for sample in cut(documents, second="swapped"):
        assert sample.labels.keys() == {"sentence_order"}
        label = int(sample.labels["sentence_order"][0])
        first, second = halves(sample)[:: -1 if label else 1]
        assert len({homes[int(token)] for token in (*first, *second)}) == 1, "never text from another document"
        assert first[-1] < second[0]
        if len(sample) < 128:
            assert first[-1] + 1 == second[0]
        labels.append(label)
    assert len(labels) > 200
    assert abs(np.mean(labels) - 0.5) <= 0.01


def test_swapping_loses_no_text(written):
    documents = written([np.full(9, 2)] * 100)
    used = Counter()
    for sample in cut(documents, second="swapped", short_probability=0.4, length=256):
        used.update(np.concatenate(halves(sample)).tolist())
    tokens = Counter(home(documents).keys())
    assert not used - tokens
    assert all((token - 10) % 18 >= 16 for token in tokens - used), "only single last sentences"


@pytest.mark.parametrize("probability", [0.03, 0.1, 1.0])
def test_electras_single_texts_are_as_many_as_set(written, probability):
    documents = written([[1] * 250_000])  # a single last sentence, so that only the probability decides
    samples = cut(documents, second="next", single_probability=probability)
    assert len(samples) > 2000
    assert abs(np.mean([not sample.segments.any() for sample in samples]) - probability) < 0.015


@pytest.mark.parametrize("probability", [0.1, 1.0])
def test_single_texts_are_whole_and_have_the_capacity_of_one(written, probability):
    samples = cut(written(lengths_of("ordinary")), second="next", single_probability=probability)
    single = [sample for sample in samples if not sample.segments.any()]
    assert (len(single) == len(samples)) == (probability == 1)
    for sample in single:
        assert (sample.ids == SEP).sum() == 1
        assert sample.ids[-1] == SEP
        assert len(sample) <= 128
        assert (np.diff(sample.ids[1:-1]) == 1).all()
    assert max(map(len, single)) == 128, "the capacity of one text, not of two"


def test_single_texts_omit_no_sentence(written):
    documents = written([np.full(9, 2)] * 100)
    used = Counter()
    for sample in cut(documents, second="next", single_probability=0.1, short_probability=0.4, length=256):
        used.update(sample.ids[sample.ids > SEP].tolist())
    assert used == Counter(home(documents).keys())


def test_single_texts_have_no_order():
    with pytest.raises(ValueError, match="single_probability must be 0"):
        SentencePairsSettings(length=128, second="swapped", single_probability=0.1)
