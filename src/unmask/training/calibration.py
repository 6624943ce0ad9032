"""What a run finds out before it trains: how much fits into memory, how long a step takes, what the budget comes to.

In: a source and the recipe's settings. Out: tokens of a micro-batch, steps of the whole budget, the machine's peak. All
processes get the same answers. Whoever times steps restores the run afterwards (`Trainer._seconds_per_step`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property

from unmask.batches.batch import Sample
from unmask.batches.sources import Source
from unmask.errors import UserError
from unmask.runs.directory import RunDirectory
from unmask.runs.display import Display, duration
from unmask.training.machine import Machine
from unmask.training.memory import find_micro_tokens
from unmask.training.plan import Plan
from unmask.training.processes import Processes
from unmask.training.settings import TrainingSettings

BUDGETS = {"budget.steps", "budget.tokens", "budget.minutes", "budget.epochs"}
"""A resumed run that has changed one of these turns its budget into steps anew;"""
FITTING = {"batch.micro_tokens", "batch.recompute"}
"""one of these, it looks anew for what fits into memory."""
TIMED_STEPS = 8
"""How many steps are timed to turn a budget in minutes into steps, after `WARM_STEPS` that are not."""
WARM_STEPS = 3
TIMED_SECONDS = 60
"""No more than that is spent on timing a stage."""
MIN_TIMED = 100
"""Shorter runs are not timed, nor is the machine's peak measured for them."""
UNKNOWN_STEPS = 1_000_000
"""Stands for the total while it is being found out; those steps are taken back."""
RESERVED_BYTES = 20
"""A parameter's two moments, and its copy and theirs while a checkpoint is written, in float32."""


def check_growth(before: int, after: int, run: RunDirectory, display: Display) -> None:
    """Compare the steps of the budget with those it had when the run was last started.

    Raises:
        UserError: they are fewer.
    """
    if after < before:
        raise UserError(
            f"the budget was {before} steps and would be {after}; it may only grow",
            file=run.path,
            remedy="resume with the same command or a larger budget",
        )
    if before and after > before:
        display.say(f"the budget was {before} steps; the schedule goes on to its new end")


class Calibration:
    """Measures and plans for one run.

    Args:
        source: of samples.
        settings: the recipe's batch and budget.
        machine: what the run computes on.
        processes: those that train together.
    """

    def __init__(self, source: Source, settings: TrainingSettings, machine: Machine, processes: Processes) -> None:
        self.source = source
        self.settings = settings
        self.machine = machine
        self.processes = processes

    @cached_property
    def plan(self) -> Plan:
        """What the budget comes to."""
        return Plan(self.source, self.settings)

    def micro_tokens(self, learn: Callable[[list[Sample]], None], parameters: int) -> int:
        """Return how many tokens are in memory at once: as many as the recipe says, or as fit.

        Args:
            learn: computes the gradient of some samples, and leaves nothing behind.
            parameters: how many numbers the model has.
        """
        limits = self.settings.batch
        if limits.micro_tokens != "auto":
            return limits.micro_tokens
        cursor = self.source.enter(self.source.start, len(self.source.stages) - 1)  # the longest sequences
        samples, _ = self.source.take(cursor, tokens=limits.tokens, sequences=limits.sequences)
        samples = self.processes.share(sorted(samples, key=len))
        found = find_micro_tokens(samples, learn, self.machine, reserve=RESERVED_BYTES * parameters)
        return min(self.processes.gather(found))

    def total(self, before: int, seconds_per_step: Callable[[int], float], display: Display) -> int:
        """Turn the budget into steps and print what is to come.

        Args:
            before: steps of the budget so far; what is in minutes shrinks no budget.
            seconds_per_step: times steps of a stage.
            display: prints it.
        """
        plan, minutes, seconds = self.plan, self.settings.budget.minutes, None
        if minutes is not None or self.is_long(plan.steps(None)):
            seconds = sum(stage.share * seconds_per_step(place) for place, stage in enumerate(plan.stages))
        steps = plan.steps(seconds)
        if minutes is not None:
            steps = max(steps, before)
        text = f"{steps:,} steps of {plan.tokens:,.0f} tokens, {plan.epochs * steps:.2f} passes over the data"
        if seconds is not None:
            text += f", about {duration(steps * seconds)}"
            if (memory := self.machine.memory()) > 0:
                text += f", {memory / 2**30:.1f} GiB of memory"
        display.say(text)
        if len(plan.stages) > 1:
            for line in plan.stage_lines(steps):
                display.say(line)
        return steps

    def is_long(self, steps: int) -> bool:
        """Return whether it is worth the time to measure how fast a run of so many steps goes."""
        return self.settings.budget.minutes is not None or steps >= MIN_TIMED

    def peak(self, run: RunDirectory, steps: int) -> float | None:
        """Measure the machine's peak and write it into the run's provenance, where the run is long enough."""
        if not self.is_long(steps):
            return None
        peak: float = self.processes.all_reduce({"peak": self.machine.matmul_peak()})["peak"]
        run.describe_machine(self.machine.describe() | {"matmul_flops_per_second": round(peak)})
        return peak

    def time(self, step: Callable[[], object]) -> float:
        """Take some steps and return the seconds of one."""
        for _ in range(WARM_STEPS):
            step()
        begun = time.perf_counter()
        timed, enough = 0, False
        while not enough:
            step()
            timed, seconds = timed + 1, time.perf_counter() - begun
            enough = self.processes.broadcast(timed == TIMED_STEPS or seconds > TIMED_SECONDS)
        return self.processes.broadcast(seconds / timed)
