"""Handling of Ctrl-C, SIGTERM and SIGHUP: finish the step, save, and exit with the status that shells expect."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from unmask.support.errors import UnmaskError
from unmask.support.messages import argument


class Interrupted(UnmaskError):
    """Raised when a signal ended the run, after saving it: status 130 after Ctrl-C, 143 after SIGTERM, 129, SIGHUP."""

    def __init__(self, step: int, number: int) -> None:
        super().__init__(
            f"stopped and saved at step {step}; continue with the same command and {argument('resume', True)}"
        )
        self.status = 128 + number


class Interrupt:
    """Context manager that only records the first signal; a second Ctrl-C stops immediately.

    Attributes:
        signal: number of the signal, 0 if there was none.
    """

    signals = tuple(
        getattr(signal, name)
        for name in ("SIGINT", "SIGTERM", "SIGHUP")  # the last when a terminal closes; not on Windows
        if hasattr(signal, name)
    )

    def __init__(self) -> None:
        self.signal = 0

    def __enter__(self) -> Interrupt:
        self.before = {}
        if threading.current_thread() is threading.main_thread():  # handlers can only be set there
            ignored = [number for number in self.signals if signal.getsignal(number) is signal.SIG_IGN]  # by nohup
            self.before = {
                number: signal.signal(number, self._record) for number in self.signals if number not in ignored
            }
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
