"""Settings of optimizers, the recipe's [optimizer]: what all kinds have, and AdamW, LAMB and Muon."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
from torch import nn

from unmask.training.optimizer import Lamb, Muon, Optimizer


class OptimizerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """The settings that [optimizer] of a recipe has for every kind. None decays biases and norms.

    Attributes:
        learning_rate: peak learning rate.
        matrix_learning_rate: peak learning rate of the matrices of the encoder's layers; None: `learning_rate`.
        momentum: decay rate of their momentum per step; 0.95 if it is not set.
        betas: decay rates of AdamW's moments per step; (0.9, 0.999) if `half_lives` is not set either.
        half_lives: the same in tokens: after how many tokens the weight of a gradient in each moment has halved. Unlike
            `betas` they have the same meaning for any batch size.
        epsilon, weight_decay: hyperparameters of AdamW, and of LAMB, whose direction is AdamW's.
        bias_correction: off in google-research/bert; without it short fine-tuning is unstable (Mosbach et al. 2021).
        clip: maximum norm of the whole gradient; 0: no clipping.
        layer_decay: ratio of the learning rate of each layer of the encoder to that of the layer above it (see
            training/optimizer.py); 1.0: the same rate for all.
        head_rate: ratio of the learning rate of the objectives' heads to that of the encoder; None: 1, but in
            pretraining 20 if heads are new and the encoder is not.
        average: share of the budget at whose end the weights are averaged over the steps (Izmailov et al. 2018); 0:
            the weights of the last step are taken.
        treats_matrices: whether matrices of the encoder's layers have a learning rate and a momentum of their own.
        reads_all_rows: whether the step of a row of the token embeddings depends on the other rows.
    """

    learning_rate: float = 1e-4
    matrix_learning_rate: float | None = None
    momentum: float | None = None
    betas: tuple[float, float] | None = None
    half_lives: tuple[float, float] | None = None
    epsilon: float = 1e-6
    weight_decay: float = 0.01
    bias_correction: bool = True
    clip: float = 1.0
    layer_decay: float = 1.0
    head_rate: float | None = None
    average: float = 0.0

    either = ("betas", "half_lives")
    kept = (
        "learning_rate",
        *either,
        "epsilon",
        "weight_decay",
        "bias_correction",
        "clip",
        "layer_decay",
        "head_rate",
        "average",
    )
    treats_matrices: ClassVar[bool] = False
    reads_all_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        positive = all(0 < value < math.inf for value in (self.learning_rate, self.matrix_rate, self.epsilon))
        if not positive or not all(0 <= value < math.inf for value in (self.weight_decay, self.clip)):
            raise ValueError("learning rates and epsilon must be positive, weight_decay and clip not negative")
        if not self.treats_matrices and (self.matrix_learning_rate, self.momentum) != (None, None):
            raise ValueError('matrix_learning_rate and momentum go with kind = "muon"')
        if self.betas is not None and self.half_lives is not None:
            raise ValueError("set at most one of optimizer.betas and optimizer.half_lives")
        if self.treats_matrices and self.momentum is None:
            msgspec.structs.force_setattr(self, "momentum", 0.95)
        if self.betas is None and self.half_lives is None:
            msgspec.structs.force_setattr(self, "betas", (0.9, 0.999))
        if not all(0 <= beta < 1 for beta in (*(self.betas or ()), self.momentum or 0.0)):
            raise ValueError("betas and momentum must lie in [0, 1)")
        if not all(0 < tokens < math.inf for tokens in self.half_lives or ()):
            raise ValueError("half_lives must be positive numbers of tokens")
        if not 0 < self.layer_decay <= 1:
            raise ValueError("layer_decay must lie in (0, 1]")
        if self.head_rate is not None and not 0 < self.head_rate < math.inf:
            raise ValueError("head_rate must be positive")
        if not 0 <= self.average <= 1:
            raise ValueError("average must lie in [0, 1]")

    @abstractmethod
    def build(self, module: nn.Module, layer_groups: Sequence[nn.Module] = (), **options: Any) -> Optimizer:
        """Return the optimizer of a module; see `Optimizer` for the arguments."""

    @property
    def kind(self) -> str:
        """Its `kind` in recipes."""
        return str(self.__struct_config__.tag)

    @property
    def matrix_rate(self) -> float:
        """Peak learning rate of the matrices of the encoder's layers."""
        return self.learning_rate if self.matrix_learning_rate is None else self.matrix_learning_rate

    def decays(self, tokens: float) -> tuple[float, float]:
        """Return the decay rates of AdamW's moments per step, of a run whose steps have `tokens` tokens on average."""
        if self.half_lives is None:
            assert self.betas is not None
            return self.betas
        first, second = (0.5 ** (tokens / half_life) for half_life in self.half_lives)
        return first, second


class AdamWSettings(OptimizerSettings, frozen=True, kw_only=True, tag="adamw"):
    """The recipe's [optimizer] for `kind = "adamw"` (Loshchilov and Hutter 2019)."""

    reads_all_rows = False

    def build(self, module: nn.Module, layer_groups: Sequence[nn.Module] = (), **options: Any) -> Optimizer:
        """See `OptimizerSettings`."""
        return Optimizer(module, self, layer_groups, **options)


class LambSettings(OptimizerSettings, frozen=True, kw_only=True, tag="lamb"):
    """The recipe's [optimizer] for `kind = "lamb"` (You et al. 2020), for very large batches."""

    def build(self, module: nn.Module, layer_groups: Sequence[nn.Module] = (), **options: Any) -> Optimizer:
        """See `OptimizerSettings`."""
        return Lamb(module, self, layer_groups, **options)


class MuonSettings(OptimizerSettings, frozen=True, kw_only=True, tag="muon"):
    """The recipe's [optimizer] for `kind = "muon"` (Jordan et al. 2024), with AdamW for other parameters."""

    treats_matrices = True
    reads_all_rows = False

    def build(self, module: nn.Module, layer_groups: Sequence[nn.Module] = (), **options: Any) -> Optimizer:
        """See `OptimizerSettings`."""
        return Muon(module, self, layer_groups, **options)
