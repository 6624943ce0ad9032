"""Ctrl-C and SIGTERM: finish the step, save, and leave with the status that shells expect."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from unmask.errors import UnmaskError


class Interrupted(UnmaskError):
    """A signal ended the run, which is saved: status 130 after Ctrl-C, 143 after SIGTERM."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.status = 128 + number

    @classmethod
    def at(cls, step: int, number: int) -> Interrupted:
        """Return what ends a run that is saved at a step."""
        return cls(f"stopped and saved at step {step}; go on with the same command and --resume", number)


class Interrupt:
    """While entered, the first signal is only noted; a second Ctrl-C stops at once.

    Attributes:
        signal: its number, 0 before any.
    """

    signals = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.signal = 0

    def __enter__(self) -> Interrupt:
        self.before = {}
        if threading.current_thread() is threading.main_thread():  # only there may handlers be set
            self.before = {number: signal.signal(number, self._note) for number in self.signals}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
