"""AdamW with BERT's conventions, its learning rate a pure function of the step, its state by parameter name."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from unmask.training.settings import OptimizerSettings

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps of each parameter."""


class Optimizer:
    """AdamW over a module; matrices decay, biases and norms do not (the embeddings do, as in the reference code).

    Args:
        module: whose parameters are trained.
        settings: the recipe's.
    """

    def __init__(self, module: nn.Module, settings: OptimizerSettings) -> None:
        self.settings = settings
        self.names = {name: value for name, value in module.named_parameters() if value.requires_grad}
        matrices = [value for value in self.names.values() if value.ndim >= 2]
        vectors = [value for value in self.names.values() if value.ndim < 2]
        self.adamw = torch.optim.AdamW(
            [{"params": matrices, "decay": settings.weight_decay}, {"params": vectors, "decay": 0.0}],
            lr=settings.learning_rate,
            betas=settings.betas,
            eps=settings.epsilon,
            fused=True,
        )

    def gradients(self) -> list[Tensor]:
        """Return those that there are, in the order of the names."""
        return [value.grad for value in self.names.values() if value.grad is not None]

    def clip(self) -> float:
        """Scale the gradient down to the largest norm allowed; return its norm before."""
        return float(nn.utils.clip_grad_norm_(self.names.values(), self.settings.clip))

    def step(self, number: int, factor: float) -> float:
        """Apply the gradients and forget them, `number` times having gone before; return the learning rate.

        Without bias correction the update is m / (sqrt(v) + epsilon): torch's corrected one, with the rate and epsilon
        divided by what the correction multiplies them by.
        """
        rate = self.settings.learning_rate * factor
        scale = root = 1.0
        if not self.settings.bias_correction:
            first, second = self.settings.betas
            root = (1 - second ** (number + 1)) ** 0.5
            scale = (1 - first ** (number + 1)) / root
        for group in self.adamw.param_groups:
            group["lr"] = rate * scale
            group["eps"] = self.settings.epsilon / root
            group["weight_decay"] = group["decay"] / scale
        self.adamw.step()
        self.forget()
        return rate

    def forget(self) -> None:
        """Drop the gradients."""
        self.adamw.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """Return the moments by parameter name, empty before the first step."""
        return {
            f"{name}.{key}": torch.as_tensor(value)
            for name, parameter in self.names.items()
            for key, value in self.adamw.state[parameter].items()
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` returned."""
        self.adamw.state.clear()
        if not state:
            return
        for name, parameter in self.names.items():
            if f"{name}.step" in state:  # a parameter that no objective reads (the pooler without pairs) has no moments
                self.adamw.state[parameter] = {
                    key: state[f"{name}.{key}"].clone().to(parameter.device) for key in MOMENTS
                }
