"""Training settings, the recipe's [batch], [optimizer], [schedule], [budget] and [card], and the plan of a run.

A `Plan` is the budget in steps, tokens and epochs, and the interval between evaluations.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias, Union

import msgspec

from unmask.data.batches.sources import Source, stage_ends
from unmask.support.errors import counted
from unmask.support.model_card import CardSettings
from unmask.support.plugins import Registry
from unmask.training.optimizer_settings import AdamWSettings, LambSettings, MuonSettings, OptimizerSettings

LARGEST = 1e15
"""Maximum budget in any unit, below the whole numbers that floats do not have (from 9e15)."""
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

Distribution = Literal["replicate", "shard", "hybrid"]
"""Ways to distribute the weights over several processes."""
OPTIMIZERS: Registry[type[OptimizerSettings]] = Registry(
    "unmask.optimizers", {"adamw": AdamWSettings, "lamb": LambSettings, "muon": MuonSettings}, OptimizerSettings
)
"""Settings classes by `kind` in [optimizer]; packages with optimizers of their own import optimizer_settings.py."""

if TYPE_CHECKING:
    AnyOptimizer: TypeAlias = OptimizerSettings
else:
    AnyOptimizer = Union[tuple(OPTIMIZERS.values())]  # noqa: UP007 (number of members known only at run time)
"""Type of [optimizer] in a recipe."""


class BatchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [batch]: the size of an optimizer step, in exactly one of two units.

    Attributes:
        tokens: maximum number of tokens, including special tokens; samples are taken in order while they fit.
        sequences: exact number of sequences.
        micro_tokens: tokens in memory at once; gradients are accumulated over the batch. "auto": as
            many as fit, on a CPU about 8,000, where more are no faster.
        recompute: keep only the layers' inputs and recompute the rest in the backward pass (Chen et al. 2016): much
            less memory, about a third more time.
        compile: compute layers with compiled kernels (`Learner.compile_layers`), which takes a GPU more
            tokens per second after some seconds of compiling; "auto": in long runs, where torch can.
        distribute: what each of several processes has of the weights, gradients and moments. "replicate": all of
            them; "shard": an equal part of them, so that larger models fit; "hybrid": each host has all, divided among
            its processes.
    """

    tokens: int | None = None
    sequences: int | None = None
    micro_tokens: int | Literal["auto"] = "auto"
    recompute: bool = False
    compile: bool | Literal["auto"] = "auto"
    distribute: Distribution = "replicate"

    either = ("tokens", "sequences")

    def __post_init__(self) -> None:
        if (self.tokens is None) == (self.sequences is None):
            raise ValueError("set exactly one of batch.tokens and batch.sequences")
        if min(value for value in (self.tokens, self.sequences, self.micro_tokens) if isinstance(value, int)) < 1:
            raise ValueError("tokens, sequences and micro_tokens must be at least 1")


class ScheduleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [schedule] of the learning rate: linear warm-up, then a decay to 0.

    Attributes:
        kind: "linear": linear decay until the end of the budget; "cosine": half a cosine (Loshchilov and Hutter 2017,
            equation 5, without restarts); "constant": no decay; "warmup_stable_decay": constant, then linear decay (Hu
            et al. 2024, whose decay is exponential; Zhai et al. 2022 decay linearly).
        warmup: warm-up as a share of the budget.
        decay: final share of the budget in which "warmup_stable_decay" decays.
    """

    kind: Literal["linear", "cosine", "constant", "warmup_stable_decay"] = "linear"
    warmup: float = 0.05
    decay: float | None = None

    kept = ("warmup",)

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < 1:
            raise ValueError("warmup is a share of the budget and must satisfy 0 <= warmup < 1")
        if (self.kind == "warmup_stable_decay") != (self.decay is not None):
            raise ValueError(
                'schedule.decay, a share of the budget such as 0.1, goes with schedule.kind = "warmup_stable_decay"'
            )
        if self.decay is not None and not 0 < self.decay <= 1 - self.warmup + 1e-9:
            raise ValueError(
                "decay is a share of the budget after the warm-up and must satisfy 0 < decay <= 1 - warmup"
            )

    def factor(self, step: int, total: int) -> float:
        """Return the factor of the peak learning rate in a step (from 0) of `total`.

        The factor is still positive in the last step and would be 0 in the one after it. BERT's reference code does not
        rebase the decay at the end of the warm-up, so its rate jumps there; this follows the paper's "linear decay"
        instead.
        """
        warmup = round(self.warmup * total)
        if step < warmup:
            return (step + 1) / warmup
        remaining = total - step
        if self.kind == "cosine":
            return 0.5 - 0.5 * math.cos(math.pi * remaining / max(1, total - warmup))
        if self.kind == "constant":
            return 1.0
        decay = total - warmup if self.decay is None else round(self.decay * total)
        return min(1.0, remaining / max(1, decay))


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [budget], in exactly one unit. Tokens include special tokens but no padding.

    Attributes:
        steps, tokens, minutes, epochs: length of the training; in fine-tuning, 0 epochs train nothing but a probe.
        max_minutes: length in minutes at most, if the budget is in another unit; steps are timed to keep to it.
        patience: number of evaluations without a lower held-out loss after which training stops and returns to the
            best weights.
    """

    steps: int | None = None
    tokens: float | None = None
    minutes: float | None = None
    epochs: float | None = None
    max_minutes: float | None = None
    patience: int | None = None

    either = ("steps", "tokens", "minutes", "epochs")

    def __post_init__(self) -> None:
        values = [value for value in (self.steps, self.tokens, self.minutes, self.epochs) if value is not None]
        if len(values) != 1:
            raise ValueError("set exactly one of steps, tokens, minutes and epochs in the budget")
        limits = [*([] if self.epochs == 0 else values), *([] if self.max_minutes is None else [self.max_minutes])]
        if not all(0 < limit <= LARGEST for limit in limits) or (self.patience is not None and self.patience < 1):
            raise ValueError(f"a budget must be positive, and at most {LARGEST:.0e}")
        if self.minutes is not None and self.max_minutes is not None:
            raise ValueError("max_minutes has no effect on a budget in minutes: remove it")

    @property
    def timed(self) -> float | None:
        """The minutes that steps have to be timed for, if any: the budget or its limit."""
        return self.max_minutes if self.minutes is None else self.minutes


class TrainingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings shared by recipes of pretraining and fine-tuning.

    Attributes:
        seed: of all that is random.
        batch, optimizer, schedule, budget: how to train.
        card: what the card of the model states; None: what the run knows.
    """

    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    batch: BatchSettings
    optimizer: AnyOptimizer
    schedule: ScheduleSettings
    budget: BudgetSettings
    card: CardSettings | None = None


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

    def steps(self, most: float = math.inf) -> int:
        """Return the number of steps of the budget, of which `most` fit into its minutes."""
        most = max(1.0, most)
        if self.budget.epochs is not None:
            most = min(most, self.counted[0].steps)
        if self.budget.tokens is not None:
            most = min(most, max(1, round(self.budget.tokens / self.tokens)))
        if self.budget.steps is not None:
            most = min(most, self.budget.steps)
        return int(most)

    def steps_of_stages(self, step: int, total: int) -> list[int]:
        """Return how many of the first steps of `total` belong to each stage."""
        ends = [0, *stage_ends(self.stages, total)]
        return [max(0, min(step, end) - begin) for begin, end in pairwise(ends)]

    def tokens_until(self, step: int, total: int) -> float:
        """Return about how many tokens the first steps of `total` have, as a measure of progress."""
        spent = self.steps_of_stages(step, total)
        return sum(counts.tokens * steps for counts, steps in zip(self.counted, spent, strict=True))

    def evaluate_every(self, total: int, heldout: int, *, closely: bool, share: float = EVALUATION_SHARE) -> int:
        """Return the number of steps between evaluations.

        Args:
            total: number of steps of the run.
            heldout: number of tokens of an evaluation.
            closely: evaluate `EVALUATIONS` times regardless of the cost, for early stopping.
            share: maximum cost of all evaluations, compared with that of the training.
        """
        affordable = int(share * FORWARDS_PER_STEP * self.tokens_until(total, total) / max(1, heldout))
        often = EVALUATIONS if closely else max(FEWEST_EVALUATIONS, min(EVALUATIONS, affordable))
        return max(1, total // often)

    def stage_lines(self, total: int) -> list[str]:
        """Return a line for each stage, for display."""
        ends = [0, *stage_ends(self.stages, total)]
        return [
            f"{stage.name or f'length {stage.length}'}: {counted(end - begin, 'step')} of {counts.tokens:,.0f} tokens"
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
        tokens += taken.tokens
        steps += 1
    return Counted(steps, tokens / steps, reached / steps)
