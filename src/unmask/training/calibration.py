"""Measurements before training: how much fits into memory, how long a step takes, how many steps the budget is.

Input: a source and the recipe's settings. Output: tokens per micro-batch, steps of the whole budget, the machine's
peak. All processes get the same results. Steps that are timed leave no trace (`Trainer._seconds_per_step`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cached_property

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample, total_length
from unmask.data.batches.sources import Source, stage_at
from unmask.support import gpus
from unmask.support.errors import UserError, counted
from unmask.training.checkpoint import Progress, Timing
from unmask.training.machine import Machine
from unmask.training.precision import find_micro_tokens
from unmask.training.processes import Processes
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display, duration
from unmask.training.settings import Plan, TrainingSettings

BUDGETS = {"budget.steps", "budget.tokens", "budget.minutes", "budget.epochs", "budget.max_minutes"}
"""If one of these settings changes, a resumed run converts its budget into steps again."""
FITTING = {"batch.micro_tokens", "batch.recompute", "batch.distribute"}
"""If one of these settings changes, a resumed run determines again how much fits into memory."""
TIMED_STEPS = 8
"""Number of steps that are timed to convert a budget in minutes into steps, after `WARM_STEPS` untimed ones."""
WARM_STEPS = 3
TIMED_SECONDS = 60
"""Maximum time spent on timing a stage."""
REPLANNED = (1 / 16, 1 / 4, 1 / 2, 3 / 4, 7 / 8)
"""Shares of a budget in minutes after which its rest is planned again: the first steps of a process are slower than
later ones, and what else a machine does changes."""
LEAST_REPLANNED = 32
"""Budgets of fewer steps are not planned again."""
TOLD = 0.1
"""Change of the number of steps that is worth a line."""
SHORTEST = 1e-3
"""Least share of the time that was planned, on a clock that stands still."""
MIN_TIMED = 100
"""Runs with fewer steps are not timed, and the machine's peak is not measured for them."""
COMPILED_STEPS, COMPILED_MINUTES, COMPILED_TOKENS = 10_000, 10, 8_192
"""Shortest budgets, and smallest steps, for which layers are compiled: it takes some seconds, several times if steps
are of very different sizes."""
UNKNOWN_STEPS = 1_000_000
"""Placeholder for the total number of steps while steps are timed; the timed steps are undone."""
RESERVED_BYTES = 20
"""Bytes per parameter: its two moments, and the copies of all three while a checkpoint is written, in float32."""


def check_growth(before: int, after: int, run: RunDirectory, display: Display) -> None:
    """Compare the number of steps of the budget with that of the previous start of the run.

    Raises:
        UserError: there are fewer steps than before.
    """
    if after < before:
        raise UserError(
            f"the budget was {before} steps and would be {after}; it may only grow",
            file=run.path,
            remedy="resume with the same command or a larger budget",
        )
    if before and after > before:
        display.say(f"the budget was {before} steps; the schedule continues to the new end")


class Calibration:
    """Measurements and planning for one run.

    Args:
        source: source of samples.
        settings: the recipe's batch and budget.
        machine: machine that the run computes on.
        processes: the processes that train together.
    """

    def __init__(self, source: Source, settings: TrainingSettings, machine: Machine, processes: Processes) -> None:
        self.source = source
        self.settings = settings
        self.machine = machine
        self.processes = processes

    @cached_property
    def plan(self) -> Plan:
        """The budget in steps, tokens and epochs."""
        return Plan(self.source, self.settings)

    def compiles(self) -> bool:
        """Return whether layers are to be compiled, as `batch.compile` says or, if it is "auto", where it pays.

        Raises:
            UserError: the device has no compiler.
        """
        chosen, able = self.settings.batch.compile, gpus.has_triton(self.machine.device)
        if chosen is True and not able:
            raise UserError(
                "batch.compile = true needs a GPU that torch compiles for, and Triton, which comes with torch on Linux",
                remedy='set batch.compile to false or "auto"',
            )
        if chosen != "auto" or not able or self.plan.tokens < COMPILED_TOKENS:
            return chosen is True
        minutes = self.settings.budget.minutes
        return self.plan.steps() >= COMPILED_STEPS if minutes is None else minutes >= COMPILED_MINUTES

    def micro_tokens(self, learn: Callable[[list[Sample]], None], parameters: int, *, joint: bool) -> int:
        """Return the number of tokens of a micro-batch: the recipe's value, or that of `find_micro_tokens`.

        It fits in every stage; a stage whose steps fit as a whole does not limit the others.

        Args:
            learn: computes the gradient of some samples, without side effects.
            parameters: number of scalar parameters that this process has.
            joint: whether the loss compares all sequences of a step.
        """
        limits = self.settings.batch
        if limits.micro_tokens != "auto":
            return limits.micro_tokens
        fitting: list[int] = []
        limiting: list[int] = []
        for stage in range(len(self.source.stages)):
            cursor = self.source.enter(self.source.start, stage)
            taken, _ = self.source.take(cursor, tokens=limits.tokens, sequences=limits.sequences)
            order = np.argsort(taken.lengths, kind="stable")
            samples = taken.read(self.processes.share(order.tolist()))
            most = int(self.processes.all_reduce_max([total_length(samples)])[0])
            reserve = RESERVED_BYTES * parameters
            fitting.append(find_micro_tokens(samples, learn, self.machine, reserve=reserve, joint=joint, most=most))
            if fitting[-1] < total_length(samples):
                limiting.append(fitting[-1])
        return min(self.processes.gather(min(limiting, default=max(fitting))))

    def total(
        self, progress: Progress, seconds_per_step: Callable[[int], float], display: Display
    ) -> tuple[int, Timing | None]:
        """Convert the budget into steps and print the plan; also return how long steps take, if they were timed.

        Args:
            progress: of the run; a budget in minutes never falls below its previous number of steps.
            seconds_per_step: times steps of a stage, given by its index.
            display: prints the plan.
        """
        plan, minutes, seconds, most = self.plan, self.settings.budget.timed, None, math.inf
        before, timing = msgspec.structs.replace(progress), None  # timing changes it
        if minutes is not None or self.is_long(plan.steps()):
            stages = tuple(seconds_per_step(index) for index in range(len(plan.stages)))
            timing, seconds = Timing(stages, before.step, before.seconds), self._mean_seconds(stages)
        if minutes is not None and seconds is not None:
            most = 60 * minutes / seconds
        steps = plan.steps(most)
        if minutes is not None:
            steps = max(steps, before.total)
        text = f"{counted(steps, 'step')} of {plan.tokens:,.0f} tokens, {plan.epochs * steps:.2f} epochs"
        if seconds is not None:
            text += f", about {duration(steps * seconds)}"
            if (memory := self.machine.memory()) > 0:
                text += f", {memory / 2**30:.1f} GiB of memory"
        if steps:
            display.say(text)
        display.say(*self.stage_lines(steps))
        return steps, timing

    def replanned(self, progress: Progress, display: Display) -> int:
        """Return the number of steps of the budget: of one in minutes, by how long the steps so far have taken.

        It changes after the shares `REPLANNED` of the steps; the progress keeps when. All processes must call it after
        each step.
        """
        minutes, step, total, timing = self.settings.budget.timed, progress.step, progress.total, progress.timing
        due = total >= LEAST_REPLANNED and step in {round(share * total) for share in REPLANNED}
        if minutes is None or timing is None or not due:
            return total
        planned = self._seconds(timing.stages, step, total)
        pace = (progress.seconds - timing.seconds) / (planned - self._seconds(timing.stages, timing.step, total))
        progress.timing = Timing(timing.stages, step, progress.seconds)
        left = (60 * minutes - progress.seconds) / max(pace, SHORTEST)
        most = (planned + left) / self._mean_seconds(timing.stages)
        steps = self.processes.broadcast(max(step + 1, self.plan.steps(most)))
        if stage_at(self.plan.stages, step, steps) != stage_at(self.plan.stages, step, total):
            return total  # a stage that has ended does not begin again
        if abs(steps / total - 1) > TOLD:
            display.say(f"{steps:,} steps fit into the budget, not {total:,}: they take {pace:.2f} times as long")
        return steps

    def _seconds(self, stages: Sequence[float], step: int, total: int) -> float:
        """Return how long the first steps of `total` take, given the seconds per step of each stage."""
        spent = self.plan.steps_of_stages(step, total)
        return sum(seconds * steps for seconds, steps in zip(stages, spent, strict=True))

    def _mean_seconds(self, stages: Sequence[float]) -> float:
        """Return how long a step takes: the mean over the stages."""
        return sum(stage.share * seconds for stage, seconds in zip(self.plan.stages, stages, strict=True))

    def stage_lines(self, steps: int) -> list[str]:
        """Return a line for each stage of `steps` steps, for display; none if there is only one."""
        return self.plan.stage_lines(steps) if len(self.plan.stages) > 1 else []

    def is_long(self, steps: int) -> bool:
        """Return whether a run of `steps` steps is long enough to spend time on measuring its speed."""
        return self.settings.budget.timed is not None or steps >= MIN_TIMED

    def peak(self, run: RunDirectory, steps: int) -> float | None:
        """Measure the machine's peak and write it to the run's provenance; return None if the run is too short."""
        if not self.is_long(steps):
            return None
        peak: float = self.processes.all_reduce({"peak": self.machine.matmul_peak()})["peak"]
        run.describe_machine(self.machine.describe() | {"matmul_flops_per_second": round(peak)})
        return peak

    def time(self, step: Callable[[], object]) -> float:
        """Take some steps and return the mean seconds per step."""
        for _ in range(WARM_STEPS):
            step()
        start = time.perf_counter()
        timed, enough = 0, False
        while not enough:
            step()
            timed, seconds = timed + 1, time.perf_counter() - start
            enough = self.processes.broadcast(timed == TIMED_STEPS or seconds > TIMED_SECONDS)
        return self.processes.broadcast(seconds / timed)
