"""Which samples of a step each process gets: those that take all processes about as long.

Input: the lengths of a step's samples, and the encoder. Output: this process's samples. A step ends when the slowest
process has ended, so that every n-th of the samples by length, which gives one process the longer one each time, costs
time. Instead each sample, the most expensive first, goes to the process that has least to do so far (Graham 1969, which
is at most a third slower than the best division, and mostly within a thousandth of the mean).

Samples of streams are not shared like this, as a process has the state of its own streams, nor those that are compared
with all others of their process, which needs equal numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from statistics import fmean
from typing import TypeVar

from unmask.nn.encoders.encoder import TWO_LMS, Encoder
from unmask.nn.layers.block import SelfAttention

PER_WIDTH = 6
"""Length, in widths of the layers, at which the products of attention take as long as those with weights."""

_T = TypeVar("_T")


def cost_of_lengths(encoder: Encoder) -> Callable[[int], float]:
    """Return the function from the length of a sequence to its cost, in tokens of a short one."""
    windows = [part.spec.window for part in encoder.modules() if isinstance(part, SelfAttention)]
    whole = fmean(window is None for window in windows) if windows else float(TWO_LMS not in encoder.provides)
    per_key = whole / (PER_WIDTH * encoder.width)
    return lambda length: length * (1 + per_key * length)


def divide(costs: Sequence[float], number: int) -> list[list[int]]:
    """Divide items among a number of processes; return the indices of each one's, in order.

    Args:
        costs: cost of each item.
        number: number of processes.
    """
    parts: list[list[int]] = [[] for _ in range(number)]
    loads = [(0.0, process) for process in range(number)]  # a heap
    for index in sorted(range(len(costs)), key=costs.__getitem__, reverse=True):
        load, process = heappop(loads)
        parts[process].append(index)
        heappush(loads, (load + costs[index], process))
    return [sorted(part) for part in parts]


def share_by_cost(items: Sequence[_T], costs: Sequence[float], rank: int, size: int) -> list[_T]:
    """Return the items of a process, in order, of which there are `size`; all if it is the only one."""
    return list(items) if size == 1 else [items[index] for index in divide(costs, size)[rank]]
