"""Restarts of a pretraining run after a crash, by a process that only watches it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from unmask.support.environment import refuse_several_processes, whole
from unmask.support.errors import UnmaskError
from unmask.training.interrupt import Interrupt
from unmask.training.runs.directory import saved_steps

ATTEMPT = "UNMASK_ATTEMPT"
"""Environment variable with the number of earlier attempts of a supervised process."""
FINAL = (0, 2, 129, 130, 143, -1, -signal.SIGINT, -signal.SIGTERM)
"""Exit statuses after which there is no other attempt: success, a user error, stopped by a person or a scheduler."""


class ProcessEnded(UnmaskError):
    """Raised when a supervised process failed for good; it has printed why."""

    shown = True

    def __init__(self, status: int) -> None:
        super().__init__(f"the process of the run ended with status {status}")
        self.status = status


def restarted() -> bool:
    """Return whether `supervise`, or torchrun with --max-restarts, has restarted this process after a crash."""
    return any(whole(name, 0) > 0 for name in (ATTEMPT, "TORCHELASTIC_RESTART_COUNT"))


def started(out: Path) -> bool:
    """Return whether a run directory has a checkpoint to resume from."""
    return any(saved_steps(out))


def supervise(words: Sequence[str], restarts: int, report: Callable[[str], None]) -> None:
    """Run a command in a child process, and restart it after a crash.

    User errors and signals are final. Ctrl-C, SIGTERM and SIGHUP are left to the child process, whose end is awaited.

    Args:
        words: the command line after `unmask`.
        restarts: number of restarts at most.
        report: called with one-line messages.

    Raises:
        ProcessEnded: the last attempt did not end with status 0.
        UserError: there are several processes.
    """
    refuse_several_processes("restarts", "use --max-restarts of torchrun")
    stopped = False
    process: subprocess.Popen[bytes] | None = None

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopped
        stopped = True
        if number != signal.SIGINT and process is not None:  # Ctrl-C is sent to both by the terminal
            process.send_signal(number)

    handlers = {number: signal.getsignal(number) for number in Interrupt.signals}
    try:
        for number, handler in handlers.items():
            if handler is not signal.SIG_IGN:  # as SIGHUP under nohup
                signal.signal(number, stop)
        for attempt in range(restarts + 1):
            command = [sys.executable, "-P", "-m", "unmask", *words]  # -P: not a numpy.py of the current folder
            process = subprocess.Popen(command, env=os.environ | {ATTEMPT: str(attempt)})
            if stopped:  # the signal came before `process` was assigned
                process.terminate()
            status = _wait(process)
            if status in FINAL or stopped:
                break
            report(f"the process ended with status {status}; restarts left: {restarts - attempt}")
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if status:
        raise ProcessEnded(status if status >= 0 else 128 - status)


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Return the exit status of a process.

    A signal that arrives just before a blocking system call is handled only after it: waiting is never long.
    """
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=1)
