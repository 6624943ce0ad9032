"""How anything is trained: the recipe's [batch], [optimizer], [schedule] and [budget]."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec


class BatchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [batch]: an optimiser step's worth, in exactly one of two units.

    Attributes:
        tokens: at most that many, special ones included; samples are taken in order while they fit.
        sequences: exactly that many.
        micro_tokens: how many tokens are in memory at once; gradients are accumulated up to the batch. "auto": as many
            as fit.
        recompute: keep only the layers' inputs and compute the rest again in the backward pass (Chen et al. 2016):
            much less memory, about a third more time.
    """

    tokens: int | None = None
    sequences: int | None = None
    micro_tokens: int | Literal["auto"] = "auto"
    recompute: bool = False

    either = ("tokens", "sequences")

    def __post_init__(self) -> None:
        if (self.tokens is None) == (self.sequences is None):
            raise ValueError("a batch is counted in exactly one of tokens and sequences")
        if min(value for value in (self.tokens, self.sequences, self.micro_tokens) if isinstance(value, int)) < 1:
            raise ValueError("tokens, sequences and micro_tokens must be at least 1")


class OptimizerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [optimizer].

    Attributes:
        kind: "adamw" (Loshchilov and Hutter 2019), or "lamb" (You et al. 2020) for very large batches; neither has
            biases and norms decay.
        learning_rate: at its peak.
        betas, epsilon, weight_decay: of AdamW, and of LAMB, whose direction is AdamW's.
        bias_correction: off in google-research/bert; without it short fine-tuning is unstable (Mosbach et al. 2021).
        clip: largest norm of the whole gradient; 0: it is not clipped.
        layer_decay: by so much each layer of the encoder learns slower than what stands on it (see
            training/optimizer.py); 1.0: all at the same rate.
    """

    kind: Literal["adamw", "lamb"] = "adamw"
    learning_rate: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    bias_correction: bool = True
    clip: float = 1.0
    layer_decay: float = 1.0

    def __post_init__(self) -> None:
        positive = all(0 < value < math.inf for value in (self.learning_rate, self.epsilon))
        if not positive or not all(0 <= value < math.inf for value in (self.weight_decay, self.clip)):
            raise ValueError("learning_rate and epsilon must be positive, weight_decay and clip not negative")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError("betas must lie in [0, 1)")
        if not 0 < self.layer_decay <= 1:
            raise ValueError("layer_decay must lie in (0, 1]")


class ScheduleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [schedule] of the learning rate: up during the warm-up, then down by a curve to 0.

    Attributes:
        kind: "linear": in a straight line down to the end of the budget; "cosine": along half a cosine (Loshchilov
            and Hutter 2017, equation 5, without restarts); "constant": stays up; "warmup_stable_decay": stays up,
            then in a straight line down (Hu et al. 2024, whose descent is exponential; Zhai et al. 2022 have the
            straight one).
        warmup: share of the budget.
        decay: share of the budget, at its end, in which "warmup_stable_decay" comes down.
    """

    kind: Literal["linear", "cosine", "constant", "warmup_stable_decay"] = "linear"
    warmup: float = 0.05
    decay: float | None = None

    kept = ("warmup",)

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < 1:
            raise ValueError("warmup is a share of the budget: 0 <= warmup < 1")
        if (self.kind == "warmup_stable_decay") != (self.decay is not None):
            raise ValueError(
                'schedule.decay, a share of the budget such as 0.1, goes with schedule.kind = "warmup_stable_decay"'
            )
        if self.decay is not None and not 0 < self.decay <= 1 - self.warmup + 1e-9:
            raise ValueError("decay is a share of the budget beside the warm-up: 0 < decay <= 1 - warmup")

    def factor(self, step: int, total: int) -> float:
        """Return what the peak learning rate is multiplied by in a step (from 0) of `total`.

        The last step of a descent is its last one above 0: 0 is reached when the budget is spent. The reference code
        of BERT does not rebase the decay at the end of the warm-up, and so jumps there; the paper's "linear decay" is
        followed instead.
        """
        warmup = round(self.warmup * total)
        if step < warmup:
            return (step + 1) / warmup
        left = total - step
        if self.kind == "cosine":
            return 0.5 - 0.5 * math.cos(math.pi * left / max(1, total - warmup))
        if self.kind == "constant":
            return 1.0
        descent = total - warmup if self.decay is None else round(self.decay * total)
        return min(1.0, left / max(1, descent))


class BudgetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [budget], in exactly one unit. Tokens count special tokens, never padding.

    Attributes:
        steps, tokens, minutes, epochs: how long to train.
        patience: end earlier, after so many evaluations without a lower held-out loss, and go back to the best one.
    """

    steps: int | None = None
    tokens: float | None = None
    minutes: float | None = None
    epochs: float | None = None
    patience: int | None = None

    either = ("steps", "tokens", "minutes", "epochs")

    def __post_init__(self) -> None:
        given = [value for value in (self.steps, self.tokens, self.minutes, self.epochs) if value is not None]
        if len(given) != 1:
            raise ValueError("a budget is given in exactly one of steps, tokens, minutes, epochs")
        if not 0 < given[0] < math.inf or (self.patience is not None and self.patience < 1):
            raise ValueError("a budget must be positive")


class TrainingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What recipes of pretraining and of fine-tuning share."""

    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    batch: BatchSettings
    optimizer: OptimizerSettings
    schedule: ScheduleSettings
    budget: BudgetSettings
