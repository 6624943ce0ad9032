"""Which samples of a step each process gets: those that take all processes about as long.

Input: what a step's samples cost (objectives/flops.py). Output: this process's samples. A step ends when the slowest
process has ended, so that every n-th of the samples by length, which gives one process the longer one each time, costs
time. Instead each sample, the most expensive first, goes to the process that has least to do so far (Graham 1969, which
is at most a third slower than the best division, and mostly within a thousandth of the mean).

Samples of streams are not shared like this, as a process has the state of its own streams, nor those that are compared
with all others of their process, which needs equal numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TypeVar

_T = TypeVar("_T")


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
