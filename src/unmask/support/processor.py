"""How many cores other programs occupy, so that a run does not wait for them at each step.

A training step has thousands of points at which each thread waits for the slowest one. If another program occupies a
core, the thread there waits for its time slice again and again, and a step of two threads takes many times as long as
one of a single thread.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

STATISTICS = Path("/proc/stat")
IDLE = (3, 4)
"""Columns of a core's line in /proc/stat that are not work: idle, and waiting for a disk (man 5 proc)."""
NUM_COLUMNS = 8
"""Number of columns that count; the others, of virtual machines, are included in these."""


class Times(NamedTuple):
    """Times in seconds.

    Attributes:
        clock: of a clock.
        cores: during which the cores that this process may use worked, summed.
        own: during which this process and its finished children worked.
    """

    clock: float
    cores: float
    own: float


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_times() -> Times | None:
    """Return the times until now; None if the system does not provide them, as only Linux does."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    try:
        lines = STATISTICS.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    names, ticks = {f"cpu{core}" for core in os.sched_getaffinity(0)}, 0
    for name, *columns in map(str.split, lines):
        if name in names:
            ticks += sum(int(value) for index, value in enumerate(columns[:NUM_COLUMNS]) if index not in IDLE)
    return Times(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), sum(os.times()[:4]))


def busy_cores(before: Times | None, after: Times | None) -> float:
    """Return how many cores other programs occupied in between, on average; 0 if that is unknown."""
    if before is None or after is None or after.clock <= before.clock:
        return 0.0
    others = (after.cores - before.cores) - (after.own - before.own)
    return max(0.0, others / (after.clock - before.clock))
