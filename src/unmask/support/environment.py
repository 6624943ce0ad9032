"""The environment: the variables by which torchrun numbers its processes, the memory, and who can change files.

How many cores other programs occupy, so that a run does not wait for them at each step.

A training step has thousands of points at which each thread waits for the slowest one. If another program occupies a
core, the thread there waits for its time slice again and again, and a step of two threads takes many times as long as
one of a single thread.
"""

from __future__ import annotations

import os
import stat
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from unmask.support.errors import SharedDirectoryWarning, UnmaskError, UserError
from unmask.support.messages import argument

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
        process: during which this process and its finished children worked.
    """

    clock: float
    cores: float
    process: float


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
    others = (after.cores - before.cores) - (after.process - before.process)
    return max(0.0, others / (after.clock - before.clock))


SMALLER = "choose a smaller encoder.width, encoder.layers or tokenizer.vocabulary, or a machine with more memory"
"""What to do about a model that does not fit into memory."""

LITTLE = 2**20
"""Bytes that any machine has, for which nothing is asked of the system."""
_REMEDY = "start it with torchrun, or unset RANK, WORLD_SIZE and LOCAL_RANK"


def rank_and_size() -> tuple[int, int]:
    """Return the number of this process, from 0, and the number of processes; 0 and 1 without torchrun.

    Raises:
        UserError: the variables are no numbers, or inconsistent: a process that takes itself for another one would
            train, and write nothing.
    """
    rank, size = whole("RANK", 0), whole("WORLD_SIZE", 1)
    if ("RANK" in os.environ) != ("WORLD_SIZE" in os.environ) and (rank, size) != (0, 1):
        lacking = "WORLD_SIZE" if "RANK" in os.environ else "RANK"
        raise UserError(f"the environment sets RANK or WORLD_SIZE, but not {lacking}", remedy=_REMEDY)
    if not rank < size:
        raise UserError(f"RANK={rank} is not below WORLD_SIZE={size}", remedy=_REMEDY)
    return rank, size


def check_address() -> None:
    """Check that torchrun's variables say where the processes meet.

    Raises:
        UserError: they do not.
    """
    if lacking := [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]:
        raise UserError(f"the environment sets RANK and WORLD_SIZE, but not {' and '.join(lacking)}", remedy=_REMEDY)


def refuse_several_processes(parameter: str, remedy: str) -> None:
    """Check that this process is alone.

    Args:
        parameter: what does not work with several processes.
        remedy: what to do instead.

    Raises:
        UserError: there are several processes.
    """
    if rank_and_size()[1] > 1:
        raise UserError(f"{argument(parameter)} works with a single process only", remedy=remedy)


def whole(name: str, default: int) -> int:
    """Return an environment variable that is a whole number from 0.

    Raises:
        UserError: it is something else.
    """
    text = os.environ.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UserError(f"{name}={text[:40]} is not a whole number from 0", remedy=_REMEDY)
    return int(text)


def total_memory() -> int:
    """Return the memory of the machine or of the container in bytes, 0 if the system does not provide it."""
    if not hasattr(os, "sysconf"):  # Windows
        return 0
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of cgroups, versions 2 and 1
        with suppress(OSError, ValueError):
            memory = min(memory, int((Path("/sys/fs/cgroup") / name).read_text(encoding="utf8")))
    return memory


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of Python, NumPy or torch says that memory could not be allocated."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in ("out of memory", "allocate memory"))
    )


@contextmanager
def naming_shortage(what: str, remedy: str) -> Iterator[None]:
    """Convert errors for lack of memory into one that names a remedy.

    Raises:
        UnmaskError: out of memory.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise UnmaskError(f"out of memory {what}; {remedy}") from error


def warn_if_shared(directory: Path) -> None:
    """Warn if everybody on this machine can change a directory or a file in it, on systems with permissions.

    Checksums detect damage only: whoever can change a file can change them, too.
    """
    if not hasattr(os, "geteuid"):
        return
    with suppress(OSError):
        for path in (directory, *sorted(directory.iterdir())):
            if path.stat().st_mode & stat.S_IWOTH:
                warnings.warn(f"{path}: everybody on this machine can change it", SharedDirectoryWarning, stacklevel=2)
                return


def check_memory(needed: float, what: str, remedy: str) -> None:
    """Check, before anything is allocated, that the machine has the memory for something.

    Args:
        needed: at least as many bytes are needed.
        what: what needs them.
        remedy: what to change.

    Raises:
        UserError: it has less.
    """
    if needed > LITTLE and needed > (memory := total_memory()) > 0:
        raise UserError(
            f"{what} needs at least {needed / 2**30:,.1f} GiB of memory, this machine has {memory / 2**30:,.1f} GiB",
            remedy=remedy,
        )
