"""Streams of windows: orders, epochs, text that is too short, held-out text."""

import msgspec
import numpy as np
import pytest

from unmask.data.batches.curriculum import Feed
from unmask.data.batches.frame import Frame
from unmask.data.batches.masking import TokenMaskingSettings
from unmask.data.batches.streams import ContiguousSettings
from unmask.support.errors import UserError

CLS, SEP = 1, 2
LENGTHS = [[3, 4], [30], [1], [2, 2, 2], [11, 5], [9], [4, 1]]
LENGTH, STREAMS = 7, 3


@pytest.fixture
def texts(written):
    return written(LENGTHS)


def source(texts, *, streams=STREAMS, length=LENGTH, seed=0):
    return ContiguousSettings(length=length, streams=streams).source(texts, Frame(CLS, SEP), seed=seed)


def flat(taken):
    return [sample for samples in taken for sample in samples]


def read(one, steps, cursor=(0, 0)):
    taken = []
    for _ in range(steps):
        samples, cursor = one.take(cursor, sequences=STREAMS)
        taken.append(samples)
    return taken, cursor


def text_of(one, samples):
    """Return the tokens of an epoch's windows, concatenated by stream."""
    ordered = sorted(samples, key=lambda sample: (sample.stream, sample.key[1]))
    assert all(sample.ids[0] == CLS and sample.ids[-1] == SEP and len(sample) == LENGTH for sample in ordered)
    return np.concatenate([sample.ids[1:-1] for sample in ordered]).tolist()


def test_windows_continue_where_the_previous_ones_stopped(texts):
    one = source(texts)
    taken, cursor = read(one, one.num_windows)
    assert all([sample.stream for sample in samples] == [0, 1, 2] for samples in taken)
    assert [sample.fresh for sample in flat(taken)] == [True] * 3 + [False] * 3 * (one.num_windows - 1)
    ids = text_of(one, flat(taken))
    whole = texts.num_tokens + len(texts)
    assert whole - STREAMS * (LENGTH - 2) < len(ids) <= whole
    left = [[*np.concatenate(document).tolist(), SEP] for document in texts.documents]
    while ids:  # the documents one after the other, in any order
        (found,) = [document for document in left if document[0] == ids[0]]
        assert ids[: len(found)] == found[: len(ids)]
        ids = ids[len(found) :]
        left.remove(found)
    assert one.epochs(cursor) == 1


def test_each_epoch_has_another_order_and_fresh_streams(texts):
    one = source(texts)
    taken, cursor = read(one, 2 * one.num_windows)
    first, second = taken[: one.num_windows], taken[one.num_windows :]
    assert text_of(one, flat(first)) != text_of(one, flat(second))
    assert [sample.key for sample in second[0]] == [(1, 0, stream) for stream in range(3)]
    assert all(sample.fresh for sample in second[0])
    assert one.epochs(cursor) == 2
    keys = [sample.key for sample in flat(taken)]
    assert len(set(keys)) == len(keys)


def test_the_order_is_a_function_of_seed_and_cursor(texts):
    taken, _ = read(source(texts), 12)
    cursor = (0, 0)
    for samples in taken:
        again, cursor = source(texts).take(cursor, sequences=STREAMS)  # a new process each time
        assert [sample.ids.tolist() for sample in again] == [sample.ids.tolist() for sample in samples]
    other, _ = read(source(texts, seed=1), 12)
    assert [s.ids.tolist() for s in flat(other)] != [s.ids.tolist() for s in flat(taken)]


def test_a_text_too_short_is_refused(texts):
    with pytest.raises(UserError, match=r"do not fill a window of 5 for each of 99 streams; add text, or pass a small"):
        source(texts, streams=99).take((0, 0), sequences=99)


def test_settings_that_contradict_are_refused():
    for table in ({"length": 8, "streams": 0}, {"length": 8}):
        with pytest.raises(msgspec.ValidationError, match="streams"):
            msgspec.convert({"kind": "contiguous", **table}, ContiguousSettings)
    assert msgspec.convert({"kind": "contiguous", "length": 8, "streams": 2}, ContiguousSettings).streams == 2


def test_heldout_batches_are_windows_in_order(tokenizer, corpus):
    layout, masking = ContiguousSettings(length=16, streams=64), TokenMaskingSettings()
    count = {"counts": {"n": 1}}
    feed = Feed(layout, masking, 0, tokenizer, lambda sample: sample.add(**count))
    assert feed.source(corpus.train).streams == 64
    batches = feed.heldout(corpus.train, 2000)
    streams = 2000 // (8 * 16)
    assert len(batches) >= 8
    for window, batch in enumerate(batches):
        assert batch.streams.tolist() == list(range(streams))
        assert batch.fresh.tolist() == [window == 0] * streams
        assert [key[:2] for key in batch.keys] == [(0, window)] * streams
        assert batch.labels["masked"].numel()
