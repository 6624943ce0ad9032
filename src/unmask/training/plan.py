"""A budget in steps, tokens and epochs, and the interval between evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from unmask.data.batches.sources import Source, stage_ends
from unmask.training.settings import BatchSettings, BudgetSettings, TrainingSettings

COUNTED_STEPS = 50
"""Number of steps over which tokens and epochs are counted before training."""
EVALUATIONS = 20
"""Number of evaluations of a run, unless they would take too much of its time."""
FEWEST_EVALUATIONS = 5
"""Minimum number of evaluations in any case."""
EVALUATION_SHARE = 0.1
"""Maximum time of all evaluations, compared with that of the training."""
FORWARDS_PER_STEP = 3
"""Cost of a step in forward passes: the two gradients of a matrix product are products of the same size."""


class Counted(NamedTuple):
    """Number of steps of a stage that were read, and their mean tokens and epochs per step."""

    steps: int
    tokens: float
    epochs: float


class Plan:
    """Plan of a run, estimated from the first steps of each stage (from all steps if the budget is in epochs).

    Args:
        source: source of samples.
        settings: the recipe's batch and budget.

    Attributes:
        counted: the counts of each stage.
        tokens, epochs: means per step of the run.
    """

    def __init__(self, source: Source, settings: TrainingSettings) -> None:
        self.stages = source.stages
        self.budget = settings.budget
        self.counted = [_count(source, settings.batch, self.budget, stage) for stage in range(len(self.stages))]
        shares = [stage.share for stage in self.stages]
        self.tokens = sum(share * counts.tokens for share, counts in zip(shares, self.counted, strict=True))
        self.epochs = sum(share * counts.epochs for share, counts in zip(shares, self.counted, strict=True))

    def steps(self, seconds: float | None) -> int:
        """Return the number of steps of the budget; only minutes need the seconds per step."""
        most: float = math.inf
        if self.budget.timed is not None and seconds is not None:
            most = max(1, int(self.budget.timed * 60 / seconds))
        if self.budget.epochs is not None:
            most = min(most, self.counted[0].steps)
        if self.budget.tokens is not None:
            most = min(most, max(1, round(self.budget.tokens / self.tokens)))
        if self.budget.steps is not None:
            most = min(most, self.budget.steps)
        return int(most)

    def tokens_until(self, total: int) -> Callable[[int], float]:
        """Return a function that estimates the tokens of the first n of `total` steps, as a measure of progress."""
        ends = [0, *stage_ends(self.stages, total)]

        def tokens(step: int) -> float:
            spent = [max(0, min(step, end) - begin) for begin, end in pairwise(ends)]
            return sum(counts.tokens * steps for counts, steps in zip(self.counted, spent, strict=True))

        return tokens

    def evaluate_every(self, total: int, heldout: int, *, closely: bool, share: float = EVALUATION_SHARE) -> int:
        """Return the number of steps between evaluations.

        Args:
            total: number of steps of the run.
            heldout: number of tokens of an evaluation.
            closely: evaluate `EVALUATIONS` times regardless of the cost, for early stopping.
            share: maximum cost of all evaluations, compared with that of the training.
        """
        affordable = int(share * FORWARDS_PER_STEP * self.tokens_until(total)(total) / max(1, heldout))
        often = EVALUATIONS if closely else max(FEWEST_EVALUATIONS, min(EVALUATIONS, affordable))
        return max(1, total // often)

    def stage_lines(self, total: int) -> list[str]:
        """Return a line for each stage, for display."""
        ends = [0, *stage_ends(self.stages, total)]
        return [
            f"{stage.name or f'length {stage.length}'}: {end - begin:,} steps of {counts.tokens:,.0f} tokens"
            for stage, counts, (begin, end) in zip(self.stages, self.counted, pairwise(ends), strict=True)
        ]


def _count(source: Source, batch: BatchSettings, budget: BudgetSettings, stage: int) -> Counted:
    """Read steps of a stage, of all epochs if these are the budget; where an epoch is known, nothing has to be read."""
    if budget.epochs is not None and batch.sequences is not None and source.epoch is not None:
        samples, tokens = source.epoch
        epochs = batch.sequences / samples
        return Counted(math.ceil(budget.epochs / epochs - 1e-9), tokens * epochs, epochs)
    cursor, steps, tokens = source.enter(source.start, stage), 0, 0
    limit = budget.epochs if budget.epochs is not None else math.inf
    while (reached := source.epochs(cursor)) < limit and (budget.epochs or steps < COUNTED_STEPS):
        taken, cursor = source.take(cursor, tokens=batch.tokens, sequences=batch.sequences)
        tokens += sum(map(len, taken))
        steps += 1
    return Counted(steps, tokens / steps, reached / steps)
