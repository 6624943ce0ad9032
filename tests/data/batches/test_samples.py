"""Samples are cut by the lengths of sentences alone, and only those that are asked for are read."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.batches.batch import Sample
from unmask.data.batches.frame import Frame
from unmask.data.batches.layout import DocumentSentencesSettings, FullSentencesSettings, SingleSettings
from unmask.data.batches.samples import Cuts, Samples
from unmask.data.batches.sentence_pairs import SentencePairsSettings
from unmask.data.batches.streams import ContiguousSettings

from .conftest import cut_samples

CLS, SEP = 2, 3
FRAME = Frame(CLS, SEP)


def packed(documents, indices, length, across):
    """Return the ids of samples packed sentence by sentence, as a plain loop."""
    capacity = length - 2
    texts, text, new = [], [], False
    for index in indices:
        if not across and text:
            texts, text = [*texts, text], []
        new = bool(text)
        for sentence in documents.sentences(index):
            for start in range(0, len(sentence), capacity):
                part = sentence[start : start + capacity].tolist()
                if len(text) + new + len(part) > capacity:
                    texts, text, new = [*texts, text], [], False
                text, new = [*text, *[SEP] * new, *part], False
    return [[CLS, *text, SEP] for text in [*texts, text] if text]


@given(
    st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=8), min_size=1, max_size=9),
    st.integers(3, 40),
    st.booleans(),
)
def test_sentences_are_packed_as_by_a_loop(written, lengths, length, across):
    layout = (FullSentencesSettings if across else DocumentSentencesSettings)(length=length)
    documents = written(lengths)
    order = np.random.default_rng(0).permutation(len(lengths)).tolist()
    samples = cut_samples(layout, FRAME, documents, order, np.random.default_rng(0))
    assert [sample.ids.tolist() for sample in samples] == packed(documents, order, length, across)


LAYOUTS = {
    "single": SingleSettings(length=24),
    "full_sentences": FullSentencesSettings(length=24),
    "document_sentences": DocumentSentencesSettings(length=24),
    "random": SentencePairsSettings(length=24, second="random"),
    "next, some single": SentencePairsSettings(length=24, second="next", single_probability=0.3),
    "contiguous": ContiguousSettings(length=24, streams=6),
}


@pytest.fixture
def documents(written, monkeypatch):
    """Documents that count how often each is read."""
    made = written(np.random.default_rng(1).integers(1, 9, (60, 3)))
    made.reads = Counter()
    for name in ("tokens", "sentences"):
        read = getattr(made, name)
        monkeypatch.setattr(
            made,
            name,
            lambda read_of, read=read: (made.reads.update(np.ravel(read_of)), read(read_of))[1],
            raising=False,
        )
    return made


@pytest.mark.parametrize("layout", LAYOUTS)
def test_only_samples_that_are_asked_for_are_read(documents, layout):
    source = LAYOUTS[layout].source(documents, FRAME, seed=0)
    samples, _ = source.take(source.start, sequences=6)
    assert len(samples) == 6 and not documents.reads
    whole = [sample.ids.tolist() for sample in samples]
    documents.reads.clear()
    again, _ = LAYOUTS[layout].source(documents, FRAME, seed=0).take(source.start, sequences=6)
    (one,) = again.read([4])
    assert one.ids.tolist() == whole[4]
    ordinary = sum(id > SEP for id in whole[4])
    assert 0 < len(documents.reads) <= ordinary < len(documents)
    assert again.lengths.tolist() == list(map(len, whole))


def test_samples_are_read_in_any_order_across_blocks(documents):
    source = FullSentencesSettings(length=24).source(documents, FRAME, seed=0, block_tokens=130)
    samples, _ = source.take(source.start, sequences=100)
    expected = [(sample.key, sample.ids.tolist()) for sample in samples]
    assert len({key[:2] for key, _ in expected}) > 4
    order = np.random.default_rng(2).permutation(100).tolist()
    again, _ = source.take(source.start, sequences=100)
    assert [(sample.key, sample.ids.tolist()) for sample in again.read(order)] == [expected[index] for index in order]
    assert again[-1].key == expected[-1][0] and [sample.key for sample in again[3:5]] == [
        expected[3][0],
        expected[4][0],
    ]
    with pytest.raises(IndexError):
        again[100]


def test_changes_are_made_when_samples_are_read():
    made = []
    samples = Samples.of([Sample(key=(number,), ids=np.arange(number + 1)) for number in range(4)], stage=1)
    changed = samples.map(lambda sample: (made.append(sample.key), sample.at(0.5))[1])
    assert (len(changed), changed.tokens, changed.stage) == (4, 10, 1) and not made
    assert changed[2].done == 0.5 and made == [(2,)]


def test_lengths_of_cuts_count_separators():
    cuts = Cuts.of([[(0, 2, 9)], [(1, 0, 3), (0, 0, 4)], [(2, 5, 6), (1, 3, 5)]], pairs=False)
    assert cuts.lengths(2).tolist() == [9, 10, 6]
    (text,) = cuts.texts(np.array([1, 0]), {0: np.arange(9), 1: np.arange(10, 15)}, SEP)
    assert text.ids.tolist() == [10, 11, 12, SEP, 0, 1, 2, 3, *range(2, 9)] and text.lengths.tolist() == [8, 7]
    pairs = Cuts.of([[(0, 2, 9)], [(1, 0, 3), (0, 0, 4)]], pairs=True, labels=[0, 1])
    assert pairs.lengths(2).tolist() == [9, 11] and pairs.documents(np.array([0])) == {0}
    texts = pairs.texts(np.array([1, 1]), {0: np.arange(9), 1: np.arange(3)}, SEP)
    assert [text.lengths.tolist() for text in texts] == [[3, 3], [4, 4]]
    assert len(Cuts.of([])) == 0 == len(Cuts.of([]).lengths(1))
