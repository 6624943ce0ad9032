"""Documents in memory, and long texts of words of several tokens for the maskings."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import strategies as st

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.registries import MASKINGS
from unmask.data.batches.rng import SampleRng
from unmask.data.batches.span_masking import NgramMaskingSettings, SpanMaskingSettings, WholeWordMaskingSettings

PAD, UNK, CLS, SEP, MASK = SPECIAL = range(5)
VOCABULARY, CONTINUATION = 1000, 700
"""Ids from `CONTINUATION` on continue a word."""
KINDS = {"whole_word": WholeWordMaskingSettings, "ngram": NgramMaskingSettings, "span": SpanMaskingSettings}

LENGTHS = st.lists(st.integers(1, 700), min_size=1, max_size=40)


class Written:
    """The interface of a corpus that layouts use; all tokens are different, so that each can be traced."""

    def __init__(self, documents):
        self.documents = documents

    def __len__(self):
        return len(self.documents)

    @property
    def num_tokens(self):
        return sum(len(sentence) for document in self.documents for sentence in document)

    def lengths(self):
        return np.array([sum(map(len, document)) for document in self.documents])

    def sentence_counts(self):
        return np.array([len(document) for document in self.documents])

    def sentence_lengths(self, indices):
        return [np.array(list(map(len, self.documents[index]))) for index in indices]

    def sentences(self, index):
        return self.documents[index]

    def tokens(self, indices):
        return [np.concatenate(self.documents[index]) for index in indices]


@pytest.fixture(scope="session")
def written():
    """Returns documents of sentences of given lengths, with tokens numbered from 10."""

    def write(lengths):
        counter, documents = 10, []
        for document in lengths:
            documents.append([])
            for length in document:
                documents[-1].append(np.arange(counter, counter + length, dtype=np.int32))
                counter += length
        return Written(documents)

    return write


def cut_samples(layout, frame, documents, indices, rng):
    """Return all samples that a layout cuts from documents, in order."""
    cuts = layout.cut(frame, documents, indices, rng)
    read = sorted(cuts.documents(np.arange(len(cuts))))
    texts = dict(zip(read, documents.tokens(read), strict=True))
    samples = {}
    for pairs in (False, True):
        own = np.flatnonzero(cuts.pairs == pairs)
        if len(own):
            parts = cuts.texts(own, texts, frame.sep)
            samples |= zip(own.tolist(), layout.samples(frame, parts, cuts.labels[own]), strict=True)
    samples = [samples[number] for number in range(len(cuts))]
    assert list(map(len, samples)) == cuts.lengths(frame.between).tolist()
    return samples


def make_samples(sizes):
    """Return a sample of random tokens for each length, with segments, and some tokens masked."""
    rng = np.random.default_rng(0)
    made = []
    for number, size in enumerate(sizes):
        masked = np.sort(rng.choice(size, rng.integers(0, size + 1), replace=False))
        ids = rng.integers(0, 1000, size)
        sample = Sample(key=(number,), ids=ids, segments=rng.integers(0, 2, size), positions={"masked": masked})
        made.append(sample.add(labels={"masked": ids[masked]}, counts={"masked_lm": len(masked), "pair": 1}))
    return made


def begins(ids):
    """Return whether a word begins at each id."""
    return ids < CONTINUATION


def mask_samples(masking, samples, seed=0):
    """Return samples, masked by the numbers of their keys."""
    return masking(samples, SampleRng(seed, "masking", [sample.key for sample in samples]))


def build_masking(kind, **settings):
    return MASKINGS[kind](**settings).build(vocabulary=VOCABULARY, mask=MASK, special=frozenset(SPECIAL), begins=begins)


def long_texts(number, length=500, continued=0.3):
    """Yield long texts; by default a third of their tokens continue a word."""
    rng = np.random.default_rng(0)
    for index in range(number):
        ids = np.where(
            rng.random(length) < continued,
            rng.integers(CONTINUATION, VOCABULARY, length),
            rng.integers(5, CONTINUATION, length),
        )
        ids[0] = 5
        yield Frame(CLS, SEP).wrap(ids).named((0, index))


def mask_long_texts(masking, **settings):
    """Return pairs of a sample before and after masking."""
    samples = list(long_texts(300, **settings))
    return list(zip(samples, mask_samples(masking, samples), strict=True))


def words_of(sample):
    """Return the word index of each token, -1 for special tokens; an independent, simple implementation."""
    word, found, fresh = -1, [], True
    for id in sample.ids:
        if id in SPECIAL:
            found.append(-1)
            fresh = True
            continue
        if fresh or id < CONTINUATION:
            word += 1
        fresh = False
        found.append(word)
    return np.array(found)


def run_lengths(positions):
    """Return the lengths of runs of consecutive positions."""
    return [len(run) for run in np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1) if len(run)]


def replacements_of(masked):
    """Return what replaces each masked token: 0 for [MASK], 1 for another token, 2 for the same token."""
    now = masked.ids[masked.positions["masked"]]
    return np.where(now == MASK, 0, np.where(now == masked.labels["masked"], 2, 1))


def count_replacements(masking):
    """Return how often each kind of replacement occurs in masked long texts."""
    found = Counter()
    for _, masked in mask_long_texts(masking):
        found.update(replacements_of(masked).tolist())
        assert not np.isin(masked.ids[masked.positions["masked"]], [PAD, UNK, CLS, SEP]).any()
    return found
