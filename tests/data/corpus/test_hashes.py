"""Tests of hashes of windows and of their counts, against lists and counters."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.corpus.hashes import FrequentHashes, HashSample, mixed, segment_hashes, window_starts

SEQUENCES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=8)


@given(SEQUENCES, st.integers(1, 5))
def test_equal_windows_have_equal_hashes_and_others_do_not(documents, width):
    ids = np.concatenate([np.array(document, np.uint64) for document in documents])
    bounds = np.cumsum([0, *map(len, documents)])
    starts = window_starts(bounds, width)
    windows = [tuple(document[at : at + width]) for document in documents for at in range(len(document) - width + 1)]
    assert [tuple(ids[start : start + width].tolist()) for start in starts] == windows
    hashes = segment_hashes(mixed(ids), starts, starts + width).tolist()
    assert len(set(zip(hashes, windows, strict=True))) == len(set(hashes)) == len(set(windows))


@given(SEQUENCES)
def test_segments_of_any_length(documents):
    bounds = np.cumsum([0, *map(len, documents)])
    hashes = segment_hashes(mixed(np.concatenate(documents).astype(np.uint64)), bounds[:-1], bounds[1:]).tolist()
    contents = [tuple(document) for document in documents]
    assert len(set(zip(hashes, contents, strict=True))) == len(set(hashes)) == len(set(contents))


def counted(counts, values, size=100):
    for start in range(0, len(values), size):
        part = values[start : start + size]
        counts.add(mixed(part.astype(np.uint64)), np.arange(start, start + len(part)))
    return counts


@pytest.mark.parametrize("kind", [HashSample, FrequentHashes])
def test_few_hashes_are_counted_exactly(kind):
    values = np.random.default_rng(0).integers(0, 300, 5000)
    expected = Counter(values.tolist())
    counts = counted(kind(most=300), values)
    assert counts.total == 5000
    frequent = {int(values[place]): count for count, place in counts.most_frequent(300)}
    assert frequent == expected
    first = {value: values.tolist().index(value) for value in expected}
    assert {int(values[place]): place for _, place in counts.most_frequent(300)} == first


def test_of_many_hashes_a_sample_gives_the_share_that_occurred_before():
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.permutation(200_000), rng.integers(0, 200_000, 50_000)])
    counts = counted(HashSample(most=20_000), rng.permutation(values), size=10_000)
    exact = 1 - len(np.unique(values)) / len(values)
    assert counts.share == 1 / 16
    assert abs(counts.repeated - exact) < 0.01  # the standard error is 0.003


def test_of_many_hashes_the_frequent_ones_are_found():
    rng = np.random.default_rng(2)
    values = rng.permutation(np.concatenate([np.arange(100_000), np.repeat(np.arange(200_000, 200_010), 500)]))
    counts = counted(FrequentHashes(most=2000), values, size=1000)
    frequent = counts.most_frequent(10)
    assert {int(values[place]) for _, place in frequent} == set(range(200_000, 200_010))
    assert 0 < counts.lacking < 300
    assert all(500 - counts.lacking <= count <= 500 for count, _ in frequent)
