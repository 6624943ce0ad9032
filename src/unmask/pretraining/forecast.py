"""What a recipe costs on a machine, estimated without training: parameters, operations, time.

Input: a recipe, and how many operations per second the machine computes. Output: numbers for `unmask recipes list` and
for the choice of a recipe. The operations are those that a run counts (`Learner.forward_flops`), for one sequence of
the recipe's length.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from unmask.batches.batch import Batch, Sample, collate
from unmask.objectives.learner import Learner
from unmask.pretraining.learner import build_learner
from unmask.recipe import Recipe
from unmask.training.plan import FORWARDS_PER_STEP

SHARE = 0.4
"""Share of the machine's peak that training reaches (docs/speed.md)."""


def build_on_meta(recipe: Recipe) -> Learner:
    """Return the learner of a recipe without memory for its weights."""
    with torch.device("meta"):
        return build_learner(recipe, recipe.tokenizer.vocabulary, None)[0]


def num_parameters(recipe: Recipe) -> int:
    """Return the number of parameters of the encoder, without the heads."""
    return sum(value.numel() for value in build_on_meta(recipe).encoder.parameters())


def flops_per_token(recipe: Recipe) -> float:
    """Return the floating-point operations of a training step per token."""
    length = recipe.layout.length
    batch = collate([Sample(key=(0,), ids=np.zeros(length, np.int64), segments=np.zeros(length, np.int64))])
    masked = max(1, round(length * recipe.masking.rate_at(0.5)))
    positions = _Positions({"every": torch.arange(length), "summary": torch.zeros(1, dtype=torch.int64)})
    positions.others = torch.arange(masked)
    counted = Batch(batch.keys, batch.tokens, positions, batch.labels, batch.counts)
    return FORWARDS_PER_STEP * build_on_meta(recipe).forward_flops(counted) / length


def num_tokens(recipe: Recipe, flops_per_second: float) -> float:
    """Return the number of tokens in the recipe's budget."""
    budget = recipe.budget
    if budget.tokens is not None:
        return budget.tokens
    if budget.steps is not None:
        return budget.steps * (recipe.batch.tokens or (recipe.batch.sequences or 0) * recipe.layout.length)
    return 60 * (budget.minutes or 0.0) * flops_per_second / flops_per_token(recipe)


def num_seconds(recipe: Recipe, flops_per_second: float) -> float:
    """Return the time that the recipe's budget takes."""
    if recipe.budget.minutes is not None:
        return 60 * recipe.budget.minutes
    return num_tokens(recipe, flops_per_second) * flops_per_token(recipe) / flops_per_second


class _Positions(dict[str, Tensor]):
    """Positions of a sequence by name; names that are not known are those of masked tokens."""

    others: Tensor

    def __missing__(self, name: str) -> Tensor:
        return self.others
