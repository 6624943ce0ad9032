"""Progress display of a run: a bar with loss, speed and remaining time on a terminal, plain lines in a log file."""

from __future__ import annotations

import builtins
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from unmask.support.errors import printable
from unmask.support.messages import rendered

REWRITE_SECONDS = 0.2
"""Interval between changes of the line in a notebook."""
LINE_SECONDS = 30
"""Interval between lines if there is no terminal."""

Advance = Callable[[Mapping[str, float]], None]
_Item = TypeVar("_Item")


class RunProgress(Protocol):
    """Progress of a run: the attributes of a checkpoint's progress that a display and a report read."""

    step: int
    total: int
    tokens: int
    seconds: float
    skipped: int


class Display:
    """Display on standard error, which keeps standard output free for results.

    Args:
        quiet: print nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.in_notebook = in_notebook()
        plain = False if self.in_notebook else None  # rich would need ipywidgets
        self.console = Console(
            stderr=True, quiet=quiet, highlight=False, soft_wrap=True, force_jupyter=plain, force_terminal=plain
        )

    def say(self, *texts: str) -> None:
        """Print texts, each on a line of its own."""
        for text in texts:
            self.console.print("\n".join(map(printable, rendered(text).split("\n"))), markup=False)

    def warn(self, *texts: str) -> None:
        """Print warnings, of what may make results wrong, each on a line of its own; notes are said."""
        self.say(*(f"warning: {text}" for text in texts))

    def show_evaluation(self, progress: RunProgress, metrics: Mapping[str, float]) -> None:
        """Print the result of an evaluation."""
        text = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        self.say(f"step {progress.step} of {progress.total}, {progress.tokens:,} tokens: held out: {text}")

    @contextmanager
    def bar(
        self, progress: RunProgress, peak: float | None = None, work: Callable[[int], float] = float
    ) -> Iterator[Advance]:
        """Show the progress until the end of the run; yield a function to call with the metrics of each step.

        Args:
            progress: the run's progress, kept up to date by the caller.
            peak: the machine's peak in matrix products, in floating-point operations per second; None: not measured.
            work: the work of the first n steps, in any unit; by default all steps are equal.
        """
        start, first = time.monotonic(), progress.step
        smooth: dict[str, float] = {}
        with self._shown(1) as show:

            def advance(metrics: Mapping[str, float]) -> None:
                for name in ("loss", "tokens_per_second", "flops_per_second"):
                    if math.isfinite(metrics[name]):
                        smooth[name] = metrics[name] * 0.05 + smooth.get(name, metrics[name]) * 0.95
                done, remaining = work(progress.step) - work(first), work(progress.total) - work(progress.step)
                left = (time.monotonic() - start) / done * remaining
                text = (
                    f"step {progress.step}/{progress.total}  loss {smooth.get('loss', math.nan):.3f}  "
                    f"{duration(left)} left  {smooth['tokens_per_second']:,.0f} tokens/s  "
                    f"{speed(smooth['flops_per_second'], peak)}"  # last, because a narrow terminal truncates the line
                )
                show(progress.step / progress.total, text)

            yield advance

    def count(self, items: Sequence[_Item], tokens: Callable[[_Item], int]) -> Iterator[_Item]:
        """Yield work items, and show the progress after each; `tokens` returns the size of an item."""
        if self.console.quiet:  # a bar that shows nothing takes as long as a small model takes for a text
            yield from items
            return
        start, done, total = time.monotonic(), 0, sum(map(tokens, items))
        with self._shown(total) as show:
            for item in items:
                yield item
                done += tokens(item)
                seconds = max(time.monotonic() - start, 1e-9)
                left = duration(seconds * (total - done) / max(done, 1))
                show(done, f"{done:,} of {total:,} tokens  {left} left  {done / seconds:,.0f} tokens/s")

    @contextmanager
    def _shown(self, total: float) -> Iterator[Callable[[float, str], None]]:
        """Show the progress with a bar on a terminal, otherwise with a line every `LINE_SECONDS`.

        A notebook shows one line, which is rewritten.
        """
        if self.in_notebook and not self.console.quiet:
            yield from self._rewritten()
            return
        printed = time.monotonic()
        columns = (BarColumn(), TextColumn("{task.fields[text]}"))
        with Progress(
            *columns, console=self.console, transient=True, disable=self.console.quiet or not self.console.is_terminal
        ) as bar:
            task = bar.add_task("", total=total, text="")

            def show(done: float, text: str) -> None:
                nonlocal printed
                bar.update(task, completed=done, text=text)
                if not self.console.is_terminal and (now := time.monotonic()) - printed > LINE_SECONDS:
                    printed = now
                    self.say(text)

            yield show

    def _rewritten(self) -> Iterator[Callable[[float, str], None]]:
        """Yield a function that shows a text in place of the one before; the last one is cleared at the end."""
        shown, width = 0.0, 0

        def show(done: float, text: str) -> None:
            nonlocal shown, width
            if (now := time.monotonic()) - shown >= REWRITE_SECONDS:
                shown = now
                self.console.file.write("\r" + printable(text).ljust(width))
                self.console.file.flush()
                width = max(width, len(text))

        try:
            yield show
        finally:
            self.console.file.write("\r" + " " * width + "\r")


def in_notebook() -> bool:
    """Return whether the program runs in a notebook: in a kernel of IPython, which has a connection to a front end."""
    shell = getattr(builtins, "get_ipython", None)
    return shell is not None and getattr(shell(), "kernel", None) is not None


def speed(flops: float, peak: float | None = None) -> str:
    """Format floating-point operations per second, with their share of the peak: 412 GFLOP/s (51 % of peak)."""
    text = f"{flops / 1e12:.1f} TFLOP/s" if flops >= 1e12 else f"{flops / 1e9:.{0 if flops >= 1e10 else 1}f} GFLOP/s"
    return f"{text} ({100 * flops / peak:.0f} % of peak)" if peak else text


def duration(seconds: float) -> str:
    """Format seconds: 42 s, 3 min 20 s, 5 h 10 min."""
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds_left:02} s" if minutes else f"{seconds_left} s"
