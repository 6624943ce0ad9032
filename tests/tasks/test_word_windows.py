"""Windows of words: every word is predicted once, where it has the most context."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.tasks import tagged
from unmask.tasks.tagged import cut_windows


def contexts(sizes, window, word):
    """Return the smaller of a word's contexts in a window, computed naively."""
    return min(sum(sizes[window[0] : word]), sum(sizes[word + 1 : window[1]]))


def all_spans(sizes, capacity):
    """Return the windows that the module describes, found one word at a time."""
    spans, start = [], 0
    while True:
        stop = start
        while stop < len(sizes) and sum(sizes[start : stop + 1]) <= capacity:
            stop += 1
        spans.append((start, stop))
        if stop == len(sizes):
            return spans
        first = start
        while start < stop and (start == first or sum(sizes[first:start]) < capacity / 2):
            start += 1


@st.composite
def sizes_and_capacity(draw):
    capacity = draw(st.integers(1, 30))
    return draw(st.lists(st.integers(1, capacity), min_size=1, max_size=80)), capacity


def assert_every_word_once_with_most_context(sizes, capacity):
    windows = tagged.cut_windows(np.array(sizes), capacity)
    assert [word for window in windows for word in range(window.first, window.last)] == list(range(len(sizes)))
    spans = all_spans(sizes, capacity)
    assert {(window.start, window.stop) for window in windows} <= set(spans)
    for window in windows:
        assert window.start <= window.first < window.last <= window.stop
        assert sum(sizes[window.start : window.stop]) <= capacity
        for word in range(window.first, window.last):
            most = max(contexts(sizes, span, word) for span in spans if span[0] <= word < span[1])
            assert contexts(sizes, window, word) == most


@given(sizes_and_capacity())
def test_every_word_is_predicted_in_the_window_with_most_context(case):
    assert_every_word_once_with_most_context(*case)


@pytest.mark.parametrize("fault", ["truncation", "no overlap", "every window its own words"])
def test_the_property_notices_a_planted_fault(fault, monkeypatch):
    def faulty(sizes, capacity):
        windows = cut_windows(sizes, capacity)
        if fault == "truncation":
            return windows[:1]
        if fault == "no overlap":
            return [window._replace(start=window.first, stop=window.last) for window in windows]
        return [window._replace(first=window.start, last=window.stop) for window in windows]

    monkeypatch.setattr(tagged, "cut_windows", faulty)
    with pytest.raises(AssertionError):
        assert_every_word_once_with_most_context([1, 2, 1, 3] * 10, 10)


def test_words_have_context_on_both_sides():
    windows = cut_windows(np.ones(200, np.int64), 40)
    assert windows[0] == (0, 40, 0, 30)
    assert windows[1] == (20, 60, 30, 50)
    assert windows[-1].last == 200
    assert all(window.first - window.start >= 10 for window in windows[1:])
    assert cut_windows(np.ones(40, np.int64), 40) == [(0, 40, 0, 40)]
    assert cut_windows(np.zeros(0, np.int64), 40) == []
