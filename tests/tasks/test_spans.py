"""The search for spans beside trying all of them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.tasks.passage_windows import best_spans


@given(st.integers(1, 12), st.integers(1, 15), st.integers(1, 200), st.integers(0, 10**6))
@settings(deadline=None)
def test_the_best_spans_are_found(tokens, longest, number, seed):
    starts, ends = np.random.default_rng(seed).normal(size=(2, tokens)).astype(np.float32)
    every = [(starts[i] + ends[j], i, j) for i in range(tokens) for j in range(i, min(tokens, i + longest))]
    expected = sorted(every, reverse=True)[:number]
    assert sorted(best_spans(starts, ends, longest, number), reverse=True) == expected


def test_a_passage_without_tokens_has_no_spans():
    assert best_spans(np.zeros(0), np.zeros(0), 5, 5) == []
