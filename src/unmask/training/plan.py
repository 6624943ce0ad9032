"""What a budget comes to in steps, tokens and passes over the data, and how often a run is evaluated on the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from unmask.batches.sources import Source
from unmask.batches.stages import stage_ends
from unmask.training.settings import BatchSettings, BudgetSettings, TrainingSettings

COUNTED_STEPS = 50
"""Over so many steps tokens and passes are counted before the first."""
EVALUATIONS = 20
"""How often a run is evaluated, if that does not take more than `EVALUATION_SHARE` of it."""
FEWEST_EVALUATIONS = 5
"""How often it is evaluated even so."""
EVALUATION_SHARE = 0.1
FORWARDS_PER_STEP = 3
"""A step costs that many forward passes: a matrix product's two gradients are products of its size."""


class Counted(NamedTuple):
    """What was found in the first steps of a stage: how many were read, and the mean tokens and passes of one."""

    steps: int
    tokens: float
    epochs: float


class Plan:
    """Reads the first steps of each stage (all where the budget is in epochs), and reckons from them.

    Args:
        source: of samples.
        settings: the recipe's batch and budget.

    Attributes:
        counted: for each stage.
        tokens, passes: of a mean step of the run.
    """

    def __init__(self, source: Source, settings: TrainingSettings) -> None:
        self.stages = source.stages
        self.budget = settings.budget
        self.counted = [_count(source, settings.batch, self.budget, stage) for stage in range(len(self.stages))]
        shares = [stage.share for stage in self.stages]
        self.tokens = sum(share * found.tokens for share, found in zip(shares, self.counted, strict=True))
        self.epochs = sum(share * found.epochs for share, found in zip(shares, self.counted, strict=True))

    def steps(self, seconds: float | None) -> int:
        """Return how many steps the budget is, given the seconds of one, which only a budget in minutes asks for."""
        if self.budget.epochs is not None:
            return self.counted[0].steps
        if self.budget.tokens is not None:
            return max(1, round(self.budget.tokens / self.tokens))
        if self.budget.minutes is not None:
            assert seconds is not None
            return max(1, int(self.budget.minutes * 60 / seconds))
        return self.budget.steps or 0

    def tokens_until(self, total: int) -> Callable[[int], float]:
        """Return about how many tokens the first so many of `total` steps read: what is done of the work."""
        ends = [0, *stage_ends(self.stages, total)]

        def tokens(step: int) -> float:
            spent = [max(0, min(step, end) - begin) for begin, end in pairwise(ends)]
            return sum(found.tokens * steps for found, steps in zip(self.counted, spent, strict=True))

        return tokens

    def evaluate_every(self, total: int, heldout: int, *, closely: bool) -> int:
        """Return how many of `total` steps lie between evaluations.

        Args:
            total: the run's steps.
            heldout: tokens that an evaluation reads.
            closely: as often as ever, whatever it costs, for early stopping.
        """
        affordable = int(EVALUATION_SHARE * FORWARDS_PER_STEP * self.tokens_until(total)(total) / max(1, heldout))
        often = EVALUATIONS if closely else max(FEWEST_EVALUATIONS, min(EVALUATIONS, affordable))
        return max(1, total // often)

    def stage_lines(self, total: int) -> list[str]:
        """Say what each of several stages is, for people."""
        ends = [0, *stage_ends(self.stages, total)]
        return [
            f"length {stage.length}: {end - begin:,} steps of {found.tokens:,.0f} tokens"
            for stage, found, (begin, end) in zip(self.stages, self.counted, pairwise(ends), strict=True)
        ]


def _count(source: Source, batch: BatchSettings, budget: BudgetSettings, stage: int) -> Counted:
    cursor, steps, tokens = source.enter(source.start, stage), 0, 0
    limit = budget.epochs if budget.epochs is not None else math.inf
    while (reached := source.epochs(cursor)) < limit and (budget.epochs or steps < COUNTED_STEPS):
        samples, cursor = source.take(cursor, tokens=batch.tokens, sequences=batch.sequences)
        tokens += sum(map(len, samples))
        steps += 1
    return Counted(steps, tokens / steps, reached / steps)
