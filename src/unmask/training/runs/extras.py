"""Where the metrics of a run go besides metrics.jsonl.

Events of TensorBoard are written if it is installed (the extra `tensorboard`). Other packages can add trackers.
Input: the lines of metrics.jsonl. Output: whatever a sink makes of them. A package adds one by an entry point,

    [project.entry-points."unmask.metrics_sinks"]
    my_tracker = "my_package.tracking:open_run"

whose function takes the directory of a run and returns a `Sink`, or None to take no part (docs/python.md). A sink that
fails is dropped with a note: it never ends a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from unmask.support.notices import note
from unmask.support.plugins import Registry


def event_writer() -> Any:
    """Return TensorBoard's writer class, or None if it is not installed or cannot be imported."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except Exception:  # a broken installation may raise anything, and the numbers are in metrics.jsonl
        return None
    return SummaryWriter


GROUP = "unmask.metrics_sinks"
"""Group of entry points."""


class Sink(Protocol):
    """Receives the metrics of a run."""

    def write(self, metrics: dict[str, Any]) -> None:
        """Take a line of metrics.jsonl: values by name, including "kind" ("train", "heldout") and "step"."""

    def close(self) -> None:
        """End the run."""


class Events:
    """A sink that writes events for TensorBoard, if it is installed; they are created at the first line.

    Args:
        run: directory of the run.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._writer: Any = None
        self._wanted = True

    def write(self, metrics: dict[str, Any]) -> None:
        """See `Sink`."""
        if self._writer is None and self._wanted:
            writer = event_writer()
            self._wanted = writer is not None
            self._writer = writer(self._run / "events", purge_step=metrics["step"]) if writer else None
        if self._writer is not None:
            for name, value in metrics.items():
                if name not in ("kind", "step"):
                    self._writer.add_scalar(f"{metrics['kind']}/{name}", value, metrics["step"])

    def close(self) -> None:
        """See `Sink`."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class Sinks:
    """The sinks of a run, opened at its first line.

    Args:
        run: directory of the run.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._open: dict[str, Sink] | None = None

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Pass a line on to all sinks."""
        if self._open is None:
            self._open = {"TensorBoard": Events(self._run)}
            for name in (table := Registry[Callable[[Path], Sink | None]](GROUP, {})):
                self._guarded(name, partial(self._start, name, table))
        for name, sink in list(self._open.items()):
            self._guarded(name, partial(sink.write, dict(metrics)))

    def close(self) -> None:
        """Close all sinks; another line would open them again."""
        for name, sink in list((self._open or {}).items()):
            self._guarded(name, sink.close)
        self._open = None

    def _start(self, name: str, table: Registry[Callable[[Path], Sink | None]]) -> None:
        sink = table[name](self._run)
        if sink is not None and self._open is not None:
            self._open[name] = sink

    def _guarded(self, name: str, call: Callable[[], None]) -> None:
        """Call a function of a sink; if it fails, drop the sink."""
        try:
            call()
        except Exception as error:  # third-party code may raise anything, and the numbers are in metrics.jsonl
            (self._open or {}).pop(name, None)
            text = f"{type(error).__name__}: {error}"
            note(f"the metrics sink '{name}' failed and gets no more metrics ({text})")
