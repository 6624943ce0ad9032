"""What a recipe costs on a machine, estimated without training: parameters, operations, time.

Input: a recipe, and how many operations per second the machine computes. Output: numbers for `unmask recipes list` and
for the choice of a recipe. The operations are those that a run counts (`Learner.forward_flops`), for one sequence of
the recipe's length.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.batch import Sample, collate
from unmask.data.tokenizers.spelling import spell
from unmask.families.checkpoints.check import on_meta
from unmask.nn.encoders.encoder import CHARACTERS, TWO_LMS
from unmask.recipes.recipe import Recipe
from unmask.training.machine import Machine
from unmask.training.plan import FORWARDS_PER_STEP
from unmask.workflows.pretraining.learner import build_learner

SHARE = 0.35
"""Share of the machine's peak that training reaches: 0.2 to 0.5, the more the wider the encoder."""


def training_speed(machine: Machine) -> float:
    """Measure how fast a machine trains, in floating-point operations per second."""
    return SHARE * machine.matmul_peak()


@dataclass(frozen=True)
class Cost:
    """Attributes of a recipe that determine what it costs.

    Attributes:
        parameters: number of parameters of the encoder, without the heads.
        inner: number of parameters of its layers.
        flops: floating-point operations of a training step per token.
        tokens: number of tokens of the budget; None: it is given in minutes.
        minutes: length of the budget; None: it is given in tokens or steps.
    """

    parameters: int
    inner: int
    flops: float
    tokens: float | None
    minutes: float | None

    def num_tokens(self, flops_per_second: float) -> float:
        """Return the number of tokens that are read within the budget."""
        return 60 * (self.minutes or 0.0) * flops_per_second / self.flops if self.tokens is None else self.tokens

    def seconds(self, flops_per_second: float) -> float:
        """Return the time that the budget takes."""
        return 60 * self.minutes if self.minutes is not None else (self.tokens or 0.0) * self.flops / flops_per_second


def cost(recipe: Recipe) -> Cost:
    """Return what a recipe costs, with stages as if all of them were like the last one."""
    length = recipe.layout.length
    with on_meta():
        learner, _ = build_learner(recipe, recipe.tokenizer.vocabulary, None)
    ids = np.arange(length)
    if CHARACTERS in recipe.encoder.gives:  # as if no word occurred twice
        ids = np.stack([spell(f"word{id}".encode()) for id in ids])
    backward = True if TWO_LMS in recipe.encoder.gives else None
    batch = collate([Sample(key=(0,), ids=ids, segments=np.zeros(length, np.int64), backward=backward)])
    positions = _Positions({"every": torch.arange(length), "summary": torch.zeros(1, dtype=torch.int64)})
    positions.others = torch.arange(max(1, round(length * recipe.masking.rate_at(0.5))))
    counts = dict.fromkeys(learner.weights, 1)
    flops = learner.forward_flops(replace(batch, positions=positions, counts=counts))
    budget, step = recipe.budget, recipe.batch.tokens or (recipe.batch.sequences or 0) * length
    layers = (value for group in learner.encoder.layer_groups[1:] for value in group.parameters())
    return Cost(
        sum(value.numel() for value in learner.encoder.parameters()),
        sum(value.numel() for value in layers),
        FORWARDS_PER_STEP * flops / length,
        budget.steps * step if budget.steps is not None else budget.tokens,
        budget.minutes,
    )


class _Positions(dict[str, Tensor]):
    """Positions of a sequence by name; names that are not known are those of masked tokens."""

    others: Tensor

    def __missing__(self, name: str) -> Tensor:
        return self.others
