"""Division of a sentence into overlapping windows of whole words, each of which is predicted once.

In: the number of subwords of each word. Out: the windows, each with the words that are predicted in it. A word is
predicted where it has the most context (`_check_is_max_context` in run_squad.py of google-research/bert).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Window(NamedTuple):
    """Words `start` to `stop` of a sentence, of which `first` to `last` are predicted in it (ends exclusive)."""

    start: int
    stop: int
    first: int
    last: int


def cut_windows(sizes: np.ndarray, capacity: int) -> list[Window]:
    """Divide a sentence into windows that overlap by half; every word is predicted in exactly one of them.

    It is the window in which the smaller of the left and the right context is largest; among equals, the first.

    Args:
        sizes: the number of subwords of each word, from 1 to `capacity`; (words,).
        capacity: the number of subwords that fit into a window.
    """
    stops = np.cumsum(sizes)
    starts = stops - sizes
    owner, most = np.zeros(len(sizes), np.int64), np.full(len(sizes), -1)
    spans: list[tuple[int, int]] = []
    start = stop = 0
    while stop < len(sizes):
        stop = int(np.searchsorted(stops, starts[start] + capacity, side="right"))
        words = slice(start, stop)
        context = np.minimum(starts[words] - starts[start], stops[stop - 1] - stops[words])
        owner[words][context > most[words]] = len(spans)
        most[words] = np.maximum(most[words], context)
        spans.append((start, stop))
        half = int(np.searchsorted(starts, starts[start] + (capacity + 1) // 2))
        start = min(max(half, start + 1), stop)
    bounds = np.searchsorted(owner, np.arange(len(spans) + 1))  # `owner` is non-decreasing; the tests check it
    return [
        Window(*span, int(first), int(last))
        for span, first, last in zip(spans, bounds[:-1], bounds[1:], strict=True)
        if first < last
    ]
