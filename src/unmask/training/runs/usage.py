"""What work has used of the machine, over all starts of the program, and what that costs at a price.

Input: the clocks of this process. Output: usage.json, one entry per start, which is written again and again while the
program runs: if it is killed, what it has used until then remains, also of steps that a resumed run takes again.

Hours of a machine are those in which at least one process worked there, so that processes beside each other are not
counted twice. The time of worker processes counts once they have ended.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from unmask.support.durable import read_json, replace_file
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.training.runs.display import duration

FILE = "usage.json"


class Usage(msgspec.Struct, frozen=True):
    """What one start of the program has used.

    Attributes:
        host: a digest of the name of the machine.
        start: when it began, in seconds since 1970.
        seconds: how long it has run.
        cpu_seconds: time of all cores.
        gpu_seconds: `seconds` times the number of GPUs that it computes on.
    """

    host: str
    start: float
    seconds: float
    cpu_seconds: float
    gpu_seconds: float = 0.0


class UsageLog:
    """The usage of what is done in a directory; this start of the program begins with the object.

    Args:
        path: the file.

    Attributes:
        processes, gpus: numbers of processes that compute it, and of GPUs; each process is taken to use as much as this
            one.

    Raises:
        UserError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._before = path, read_usage(path)
        self._began, self._clock, self._cpu = time.time(), time.monotonic(), _cpu_seconds()
        self.processes, self.gpus = 1, 0

    def save(self) -> list[Usage]:
        """Write what was used until now, and return it."""
        seconds, cpu_seconds = time.monotonic() - self._clock, (_cpu_seconds() - self._cpu) * self.processes
        host = hashlib.sha256(platform.node().encode()).hexdigest()[:12]
        usages = [*self._before, Usage(host, self._began, seconds, cpu_seconds, seconds * self.gpus)]
        replace_file(self._path, msgspec.json.encode(usages))
        return usages


def read_usage(path: Path) -> list[Usage]:
    """Return what a file holds; nothing if there is none.

    Raises:
        UserError: it is damaged.
    """
    try:
        return read_json(path, list[Usage], "remove it")
    except FileNotFoundError:
        return []


def check_price(price: float | None) -> None:
    """Check a price of an hour.

    Raises:
        UserError: it is negative, or not a number.
    """
    if price is not None and not 0 <= price < math.inf:
        raise UserError(f"{argument('price', price)}: not a price", remedy="give that of an hour, such as 0.20")


def describe_usage(usages: Sequence[Usage], price: float | None = None) -> str:
    """Return in words what was used, and what it costs; empty if nothing is known.

    Args:
        usages: of one or several starts, also of different work.
        price: of an hour of a machine, in any currency; None: unknown.
    """
    if not usages:
        return ""
    machine, cpu, gpu = machine_seconds(usages), *(sum(of) for of in zip(*map(_times, usages), strict=True))
    parts = [f"{_minutes(cpu)} CPU minutes", *([f"{_minutes(gpu)} GPU minutes"] if gpu else [])]
    cost = "" if price is None else f"; at {amount(price)} an hour: {amount(price * machine / 3600)}"
    return f"{' and '.join(parts)} in {duration(machine)}{cost}"


def machine_seconds(usages: Iterable[Usage]) -> float:
    """Return how long machines were in use, summed over machines."""
    total, until = 0.0, dict[str, float]()
    for usage in sorted(usages, key=lambda usage: usage.start):
        end, free = usage.start + usage.seconds, until.get(usage.host, -math.inf)
        total += max(0.0, end - max(usage.start, free))
        until[usage.host] = max(end, free)
    return total


def _times(usage: Usage) -> tuple[float, float]:
    return usage.cpu_seconds, usage.gpu_seconds


def _minutes(seconds: float) -> str:
    minutes = seconds / 60
    return f"{minutes:.2f}" if minutes < 1 else f"{minutes:.1f}" if minutes < 10 else f"{minutes:,.0f}"


def amount(money: float) -> str:
    """Return an amount with two decimals; of a small one, two digits."""
    return f"{money:.2f}" if money >= 0.1 or not money else f"{money:.2g}"


def _cpu_seconds() -> float:
    """Return the time of all threads of this process, and of its child processes that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
