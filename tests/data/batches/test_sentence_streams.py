"""Sentences in streams of both directions: what is read and predicted, epochs, characters, settings."""

import msgspec
import numpy as np
import pytest

from unmask.data.batches.batch import collate
from unmask.data.batches.frame import Frame
from unmask.data.batches.paired_streams import SentenceStreamsSettings

CLS, SEP = 1, 2
LENGTHS = [[3, 4], [30], [1], [2, 2, 2], [11, 5], [9], [4, 1]]
LENGTH, STREAMS = 5, 4


@pytest.fixture
def texts(written):
    return written(LENGTHS)


def epoch_of(texts, number=0, **others):
    """Return the windows of an epoch by stream, each stream's in order."""
    source = SentenceStreamsSettings(length=LENGTH, streams=STREAMS).source(texts, Frame(CLS, SEP, **others), seed=0)
    taken, cursor = [[] for _ in range(STREAMS)], (number, 0)
    for _ in range(source.num_windows):
        samples, cursor = source.take(cursor)
        for stream, sample in zip(taken, samples, strict=True):
            stream.append(sample)
    return taken


def joined(samples):
    return (
        np.concatenate([sample.ids for sample in samples]).tolist(),
        np.concatenate([sample.labels["following"] for sample in samples]).tolist(),
    )


def sentences_of(read, following):
    """Return the sentences that pairs of a token and the next one spell, without the last one, which may be cut."""
    found = []
    for first, second in zip(read, following, strict=True):
        if first == CLS:
            found.append([CLS])
        assert found[-1][-1] == first, "the token that was predicted is the next to be read"
        found[-1].append(second)
    return [sentence for sentence in found[:-1] if sentence[-1] == SEP]


def test_streams_forwards_read_each_sentence_once(texts):
    taken = epoch_of(texts)
    read, following = joined([*taken[0], *taken[1]])
    found = sentences_of(read, following)
    every = [[CLS, *sentence, SEP] for document in texts.documents for sentence in document]
    assert len(found) >= len(every) - 3
    assert all(sentence in every for sentence in found)
    assert len(read) > sum(map(len, every)) - len(every) - 2 * LENGTH


def test_streams_backwards_read_the_same_text_from_its_end(texts):
    taken = epoch_of(texts)
    source = SentenceStreamsSettings(length=1, streams=2).source(texts, Frame(CLS, SEP), seed=0)
    whole = []
    for window in range(source.num_windows):
        (forward, _), _ = source.take((0, window))
        whole.append((int(forward.ids[0]), int(forward.labels["following"][0])))
    mirrored = [(second, first) for first, second in reversed(whole)]
    read, following = joined([*taken[2], *taken[3]])
    assert list(zip(read, following, strict=True)) == mirrored[: len(read)]
    assert mirrored[0][0] == SEP
    assert [stream[0].reading.backward for stream in taken] == [False, False, True, True]


def test_a_batch_has_the_streams_backwards_last(texts):
    taken = epoch_of(texts)
    batch = collate([stream[1] for stream in reversed(taken)])
    assert batch.tokens.reading.backward == 2
    assert sorted(batch.streams[:2].tolist()) == [0, 1]
    assert batch.fresh.tolist() == [False] * 4
    assert len(batch.labels["following"]) == len(batch.tokens.ids)


def test_orders_differ_from_epoch_to_epoch(texts):
    first, second = epoch_of(texts), epoch_of(texts, 1)
    assert joined(first[0]) != joined(second[0])
    assert second[0][0].fresh
    assert second[3][1].key == (1, 1, 3)


def test_what_is_read_is_spelled_and_what_is_predicted_is_not(texts):
    taken = epoch_of(texts, spell=lambda ids: np.stack([ids, -ids], 1))
    sample = taken[2][0]
    assert sample.ids.shape == (LENGTH, 2)
    assert sample.ids[0].tolist() == [SEP, -SEP]
    assert sample.labels["following"].shape == (LENGTH,)


def test_an_odd_number_of_streams_is_refused():
    for streams, reason in ((3, "even"), (0, "at least 1")):
        with pytest.raises(msgspec.ValidationError, match=reason):
            msgspec.convert({"kind": "sentence_streams", "length": 8, "streams": streams}, SentenceStreamsSettings)


def test_held_out_text_is_read_in_both_directions():
    layout = SentenceStreamsSettings(length=8, streams=64)
    assert layout.heldout(1000, 8192).streams == 14
    assert layout.heldout(10, 8192).streams == 2
