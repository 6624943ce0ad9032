"""Overlapping windows A [SEP] B [SEP] [CLS]: where they advance, what B is, both directions, settings."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest

from unmask.data.batches.frame import Frame
from unmask.data.batches.paired_streams import PairedStreamsSettings
from unmask.support.errors import UserError

CLS, SEP = 1, 2
LENGTH, REUSE, STREAMS = 20, 8, 4
TEXT = LENGTH - 3
"""Tokens of a window without special ones."""


@pytest.fixture
def texts(written):
    return written(np.random.default_rng(0).integers(1, 9, (40, 3)))


def source(texts, **settings):
    table = {"length": LENGTH, "reuse": REUSE, "streams": STREAMS} | settings
    return PairedStreamsSettings(**table).source(texts, Frame(CLS, SEP, last=True), seed=0)


def epoch_of(texts, number=0, **settings):
    """Return the windows of an epoch by stream, each stream's in order."""
    one = source(texts, **settings)
    steps = [one.take((number, window))[0] for window in range(one.num_windows)]
    return list(zip(*steps, strict=True))


def whole_text(texts, windows):
    """Return the text of the epoch in its order, read off the reused tokens of the forward streams."""
    return np.concatenate([sample.ids[:REUSE] for stream in windows[: STREAMS // 2] for sample in stream])


def parts(sample):
    """Return the reused tokens, A and B."""
    first, second = np.flatnonzero(sample.segments == 1)[[0, -1]]
    assert sample.ids[[first - 1, second, -1]].tolist() == [SEP, SEP, CLS]
    return sample.ids[:REUSE], sample.ids[REUSE : first - 1], sample.ids[first:second]


def test_a_window_is_reused_text_and_two_segments(texts):
    for sample in sum(epoch_of(texts), ()):
        reused, first, second = parts(sample)
        assert len(sample) == LENGTH
        assert len(reused) + len(first) + len(second) == TEXT
        assert len(first) and len(second)
        size = REUSE + len(first) + 1
        assert sample.segments.tolist() == [0] * size + [1] * (LENGTH - 1 - size) + [2]
        assert sample.positions["summary"].tolist() == [LENGTH - 1]
        assert sample.reading.remember == REUSE


def test_streams_advance_by_what_is_reused(texts):
    """Reused tokens continue each other, and the first segment is what the next window reuses."""
    windows = epoch_of(texts)
    total = texts.num_tokens + len(texts)
    assert len(windows[0]) == (total - TEXT + REUSE) // (STREAMS // 2 * REUSE)
    text = whole_text(texts, windows)
    ordinary = text[text != SEP]
    assert len(np.unique(ordinary)) == len(ordinary), "no token is reused twice"
    for stream in windows:
        assert [sample.fresh for sample in stream] == [True] + [False] * (len(stream) - 1)
        for sample, after in pairwise(stream):
            _, first, _ = parts(sample)
            size = min(REUSE, len(first))
            assert np.array_equal(after.ids[:size], first[:size])


def test_half_of_the_second_segments_are_continuations(texts):
    continued = []
    for stream in epoch_of(texts)[: STREAMS // 2]:
        text = np.concatenate([sample.ids[:REUSE] for sample in stream])
        for number, sample in enumerate(stream[:-3]):
            reused, first, second = parts(sample)
            size = len(reused) + len(first)
            follows = text[number * REUSE :][size : size + len(second)]
            continued.append(np.array_equal(second[: len(follows)], follows[: len(second)]))
    assert 0.35 < np.mean(continued) < 0.65


def test_the_first_segment_ends_with_a_sentence_where_one_ends(texts):
    ends = {int(sentence[-1]) for document in texts.documents for sentence in document} | {SEP}
    begins = {int(sentence[0]) for document in texts.documents for sentence in document} | {SEP}
    streams = epoch_of(texts)
    for number, border in ((0, ends), (STREAMS // 2, begins)):
        found = [int(parts(sample)[1][-1]) in border for sample in streams[number]]
        assert np.mean(found) > 0.95


def test_long_sentences_are_cut_in_the_middle(written):
    for sample in epoch_of(written([[300]]))[0]:
        assert len(parts(sample)[1]) == (TEXT - REUSE) // 2


def test_the_other_half_of_the_streams_reads_the_same_text_from_its_end(texts):
    streams = epoch_of(texts)
    assert [stream[0].reading.backward for stream in streams] == [False, False, True, True]
    forward = whole_text(texts, streams)
    one = source(texts)
    rows = one._rows(0, one.total - one.capacity)[:, 0]
    assert np.array_equal(streams[2][0].ids[:REUSE], rows[::-1][:REUSE]), "it begins with the end of the text"
    backward = np.concatenate([sample.ids[:REUSE] for stream in streams[2:] for sample in stream])[::-1]
    shared = np.intersect1d(forward[forward != SEP], backward)
    assert len(shared) > 0.8 * len(forward) * (forward != SEP).mean()
    order = {token: place for place, token in enumerate(forward)}
    indices = [order[token] for token in backward if token in order and token != SEP]
    assert indices == sorted(indices)


def test_samples_are_a_function_of_seed_and_cursor(texts):
    for cursor in ((0, 2), (1, 0)):
        first, second = (source(texts).take(cursor)[0] for _ in range(2))
        assert [one.ids.tolist() for one in first] == [one.ids.tolist() for one in second]
    assert [one.ids.tolist() for one in source(texts).take((1, 0))[0]] != [
        one.ids.tolist() for one in source(texts).take((0, 0))[0]
    ]


def test_a_text_too_short_is_refused(written):
    with pytest.raises(UserError, match="do not fill a window of 17 for each of 4 streams"):
        source(written([[15]])).take((0, 0))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"streams": 3}, "layout.streams must be even: half of the streams read backwards"),
        ({"reuse": 16}, "layout.reuse 16 is too long for a window of 20 tokens with two segments"),
        ({"reuse": 40}, "it must be between 1 and 15"),
        ({"reuse": 0}, "it must be between 1 and 15"),
    ],
)
def test_impossible_settings_are_refused(settings, reason):
    table = {"kind": "paired_streams", "length": LENGTH, "reuse": REUSE, "streams": STREAMS} | settings
    with pytest.raises(msgspec.ValidationError, match=reason):
        msgspec.convert(table, PairedStreamsSettings)
