"""How texts become sequences: BERT's, RoBERTa's, GPT's and XLNet's special tokens, segments and summary positions."""

from dataclasses import replace

import numpy as np
import pytest

from unmask.data.batches.frame import Frame
from unmask.data.tokenizers.words import Ragged

CLS, SEP, MASK = 1, 2, 3
FIRST, SECOND = np.array([10, 11]), np.array([20, 21, 22])
FRAMES = {
    "bert": Frame(CLS, SEP),
    "roberta": Frame(CLS, SEP, between=2),
    "gpt": Frame(CLS, SEP, extract=MASK),
    "xlnet": Frame(CLS, SEP, last=True),
}


@pytest.mark.parametrize(
    ("kind", "ids", "summary"),
    [
        ("bert", [CLS, 10, 11, SEP], 0),
        ("roberta", [CLS, 10, 11, SEP], 0),
        ("gpt", [CLS, 10, 11, MASK], 3),
        ("xlnet", [10, 11, SEP, CLS], 3),
    ],
)
def test_one_text(kind, ids, summary):
    sample = FRAMES[kind].wrap(FIRST)
    assert sample.ids.tolist() == ids
    assert sample.segments.tolist() == [0] * 3 + [2 if kind == "xlnet" else 0]
    assert sample.positions["summary"].tolist() == [summary]
    assert sample.key == ()


@pytest.mark.parametrize(
    ("kind", "ids", "segments", "summary"),
    [
        ("bert", [CLS, 10, 11, SEP, 20, 21, 22, SEP], [0, 0, 0, 0, 1, 1, 1, 1], 0),
        ("roberta", [CLS, 10, 11, SEP, SEP, 20, 21, 22, SEP], [0, 0, 0, 0, 0, 1, 1, 1, 1], 0),
        ("gpt", [CLS, 10, 11, SEP, 20, 21, 22, MASK], [0, 0, 0, 0, 1, 1, 1, 1], 7),
        ("xlnet", [10, 11, SEP, 20, 21, 22, SEP, CLS], [0, 0, 0, 1, 1, 1, 1, 2], 7),
    ],
)
def test_a_pair_of_texts(kind, ids, segments, summary):
    sample = FRAMES[kind].wrap(FIRST, SECOND)
    assert sample.ids.tolist() == ids
    assert sample.segments.tolist() == segments
    assert sample.positions["summary"].tolist() == [summary]


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("length", [8, 128])
def test_a_sequence_filled_to_its_capacity_has_the_length(kind, length):
    frame = FRAMES[kind]
    one, two = frame.capacity(length, texts=1), frame.capacity(length, texts=2)
    assert len(frame.wrap(np.arange(one))) == length
    assert len(frame.wrap(np.arange(2), np.arange(two - 2))) == length
    assert frame.wrap(np.arange(100, 100 + one)).ids[frame.start] == 100


def test_the_frame_of_a_tokenizer(tokenizer):
    special = {"cls": tokenizer.cls, "sep": tokenizer.sep, "spell": tokenizer.spell}
    assert Frame.of(tokenizer) == Frame(**special)
    assert Frame.of(tokenizer, "last") == Frame(**special, last=True)
    assert Frame.of(tokenizer, "extract") == Frame(**special, extract=tokenizer.mask)


def test_what_a_model_reads_may_be_more_than_ids():
    frame = Frame(5, 6, spell=lambda ids: np.stack([ids, 2 * ids], 1))
    sample = frame.wrap(np.array([1, 2]), np.array([3]))
    assert sample.ids.tolist() == [[5, 10], [1, 2], [2, 4], [6, 12], [3, 6], [6, 12]]
    assert sample.segments.tolist() == [0, 0, 0, 0, 1, 1]


def test_roberta_has_two_separators_in_a_pair(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "ends_twice", True)
    assert Frame.of(tokenizer).between == 2
    assert Frame.of(tokenizer, "extract").between == 1


def ragged(texts):
    return Ragged(np.concatenate(texts).astype(np.int32), np.array(list(map(len, texts))))


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("spell", [lambda ids: ids, lambda ids: np.stack([ids, 2 * ids], 1)], ids=["ids", "spelled"])
def test_many_texts_become_the_same_samples_as_each(kind, pairs, spell):
    frame, rng = replace(FRAMES[kind], spell=spell), np.random.default_rng(0)
    sizes = rng.integers(0, 6, (1 + pairs, 40))  # some texts are empty
    texts = [[rng.integers(10, 99, size) for size in column] for column in sizes]
    samples = frame.wrap_all(*map(ragged, texts), labels={"gold": np.arange(80).reshape(40, 2)})
    assert len(samples) == 40
    for number, (sample, *row) in enumerate(zip(samples, *texts, strict=True)):
        one = frame.wrap(*row)
        for ours, theirs in (
            (sample.ids, one.ids),
            (sample.segments, one.segments),
            (sample.positions["summary"], one.positions["summary"]),
        ):
            assert ours.dtype == theirs.dtype
            assert ours.tolist() == theirs.tolist()
        assert sample.key == (0, number)
        assert sample.labels["gold"].tolist() == [2 * number, 2 * number + 1]
    assert frame.wrap_all(Ragged(np.zeros(0, np.int32), np.zeros(0, np.int64))) == []
