"""What a person sees while a run goes on: a bar with loss, speed and the time left; plain lines in a log file."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

LINE_SECONDS = 30
"""How often a line is printed where there is no terminal."""

Advance = Callable[[Mapping[str, float]], None]
_Piece = TypeVar("_Piece")


class Standing(Protocol):
    """Where a run stands: what is read of a checkpoint's progress."""

    step: int
    total: int
    tokens: int


class Display:
    """Prints to standard error, so that results on standard output stay clean.

    Args:
        quiet: print nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, markup=False)

    def evaluated(self, standing: Standing, metrics: Mapping[str, float]) -> None:
        """Print the result of an evaluation."""
        text = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        self.say(f"step {standing.step} of {standing.total}, {standing.tokens:,} tokens: held out: {text}")

    @contextmanager
    def bar(
        self, standing: Standing, peak: float | None = None, work: Callable[[int], float] = float
    ) -> Iterator[Advance]:
        """Show the progress from where the run stands to its end; call what is given after each step.

        Args:
            standing: where the run stands, kept up to date by the caller.
            peak: of the machine's matrix products, in floating-point operations a second; None: not measured.
            work: how much there is to do in the first so many steps, in any unit; by itself, all steps are alike.
        """
        begun, first = time.monotonic(), standing.step
        smooth: dict[str, float] = {}
        with self._shown(first, standing.total) as show:

            def advance(metrics: Mapping[str, float]) -> None:
                for name in ("loss", "tokens_per_second", "flops_per_second"):
                    if math.isfinite(metrics[name]):
                        smooth[name] = metrics[name] * 0.05 + smooth.get(name, metrics[name]) * 0.95
                done, rest = work(standing.step) - work(first), work(standing.total) - work(standing.step)
                left = (time.monotonic() - begun) / done * rest
                text = (
                    f"step {standing.step}/{standing.total}  loss {smooth.get('loss', math.nan):.3f}  "
                    f"{duration(left)} left  {smooth['tokens_per_second']:,.0f} tokens/s  "
                    f"{speed(smooth['flops_per_second'], peak)}"  # last: a narrow terminal cuts it off
                )
                show(standing.step, text)

            yield advance

    def count(self, pieces: Sequence[_Piece], tokens: Callable[[_Piece], int]) -> Iterator[_Piece]:
        """Give pieces of work, and show how far it is once each is done; `tokens` says how large one is."""
        begun, done, total = time.monotonic(), 0, sum(map(tokens, pieces))
        with self._shown(0, total) as show:
            for piece in pieces:
                yield piece
                done += tokens(piece)
                seconds = max(time.monotonic() - begun, 1e-9)
                left = duration(seconds * (total - done) / max(done, 1))
                show(done, f"{done:,} of {total:,} tokens  {left} left  {done / seconds:,.0f} tokens/s")

    @contextmanager
    def _shown(self, first: int, total: int) -> Iterator[Callable[[int, str], None]]:
        """Show how much is done: a bar on a terminal, else a line from time to time."""
        printed = time.monotonic()
        columns = (BarColumn(), TextColumn("{task.fields[text]}"))
        with Progress(
            *columns, console=self.console, transient=True, disable=self.console.quiet or not self.console.is_terminal
        ) as bar:
            task = bar.add_task("", total=total, completed=first, text="")

            def show(done: int, text: str) -> None:
                nonlocal printed
                bar.update(task, completed=done, text=text)
                if not self.console.is_terminal and (now := time.monotonic()) - printed > LINE_SECONDS:
                    printed = now
                    self.say(text)

            yield show


def speed(flops: float, peak: float | None = None) -> str:
    """Write floating-point operations a second for people, with their share of the peak: 412 GFLOP/s (51 % of peak)."""
    text = f"{flops / 1e12:.1f} TFLOP/s" if flops >= 1e12 else f"{flops / 1e9:.{0 if flops >= 1e10 else 1}f} GFLOP/s"
    return f"{text} ({100 * flops / peak:.0f} % of peak)" if peak else text


def duration(seconds: float) -> str:
    """Write seconds for people: 42 s, 3 min 20 s, 5 h 10 min."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
