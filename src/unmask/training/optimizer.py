"""AdamW and LAMB: the learning rate a pure function of the step, the state by parameter name.

In: a module whose gradients are there, the recipe's [optimizer], and the encoder's levels from the bottom up. Out: the
module one step further.

**Decay.** Matrices decay, biases and norms do not (the embeddings do, as in google-research/bert).

**LAMB** (You et al. 2020, Algorithm 2, with the identity for phi) scales AdamW's step on each matrix to the norm of
that matrix, so that very large batches can learn at very large rates. As in google-research/albert, biases and norms
keep AdamW's step, a ratio without a norm is 1, and no ratio is clipped. Different from it: query, key and value are one
matrix here and share a ratio. ALBERT and BERT leave the bias correction away, the paper's Algorithm 2 has it.

**Layer-wise decay of the learning rate** (Howard and Ruder 2018, section 3.2; Clark et al. 2020, appendix B). Of an
encoder with L layers, layer l (0: the embeddings) learns at learning_rate * layer_decay^(L + 1 - l); what stands above
it (pooler and heads) at learning_rate. So the top layer has layer_decay^1: ELECTRA's code has layer_decay^2 there,
which its author calls a mistake (google-research/electra#51). XLNet counts from the top layer instead, and its code
leaves the embeddings out. A decoder that is tied to the embeddings learns as they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unmask.training.settings import OptimizerSettings

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What is kept of each parameter."""


class Optimizer:
    """AdamW or LAMB over a module; see the module's docstring for the conventions.

    Args:
        module: whose parameters are trained.
        settings: the recipe's.
        levels: the encoder's (`Encoder.levels`), for layer-wise learning rates.
    """

    def __init__(self, module: nn.Module, settings: OptimizerSettings, levels: Sequence[nn.Module] = ()) -> None:
        self.settings = settings
        self.names = {name: value for name, value in module.named_parameters() if value.requires_grad}
        # LAMB: AdamW steps on a zero in place of each matrix, and so leaves its direction there
        self.targets: dict[str, Tensor] = {
            name: torch.zeros_like(value) if settings.kind == "lamb" and value.ndim >= 2 else value
            for name, value in self.names.items()
        }
        self.adamw = torch.optim.AdamW(
            self._groups(levels), lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon, fused=True
        )

    def gradients(self) -> list[Tensor]:
        """Return those that there are, in the order of the names."""
        return [value.grad for value in self.names.values() if value.grad is not None]

    def clip(self) -> float:
        """Return the gradient's norm; in the next step it is scaled down to the largest one allowed."""
        norm = nn.utils.get_total_norm(self.gradients())
        excess = (norm + 1e-6) / self.settings.clip  # as in torch's clip_grad_norm_
        # AdamW's fused kernel divides as it reads, which saves a pass over all gradients
        self.adamw.grad_scale = excess.clamp(min=1)  # type: ignore[attr-defined]
        return float(norm)

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
            group["lr"] = scale * (1.0 if group["adapted"] else rate * group["factor"])
            group["eps"] = self.settings.epsilon / root
            group["weight_decay"] = group["decay"] / scale
        for name, target in self.targets.items():
            target.grad = self.names[name].grad
        self.adamw.step()
        for group in self.adamw.param_groups:
            if group["adapted"]:
                self._adapt(group, rate * group["factor"])
        self.forget()
        return rate

    def forget(self) -> None:
        """Drop the gradients."""
        for tensor in (*self.names.values(), *self.targets.values()):
            tensor.grad = None

    def state(self) -> dict[str, Tensor]:
        """Return the moments by parameter name, empty before the first step."""
        return {
            f"{name}.{key}": torch.as_tensor(value)
            for name, target in self.targets.items()
            for key, value in self.adamw.state[target].items()
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` returned."""
        self.adamw.state.clear()
        if not state:
            return
        for name, target in self.targets.items():
            if f"{name}.step" in state:  # a parameter that no objective reads (the pooler without pairs) has no moments
                self.adamw.state[target] = {key: state[f"{name}.{key}"].clone().to(target.device) for key in MOMENTS}

    def _groups(self, levels: Sequence[nn.Module]) -> list[dict[str, Any]]:
        """Return the parameters by what they have in common: do they decay, and at which share of the rate they learn.

        Of a group that LAMB adapts, "adapted" names the matrices for which its "params" stand.
        """
        share = {
            value: self.settings.layer_decay ** (len(levels) - depth)
            for depth, level in enumerate(levels)
            for value in level.parameters()
        }
        groups: dict[tuple[bool, float], dict[str, Any]] = {}
        for name, value in self.names.items():
            matrix, factor = value.ndim >= 2, share.get(value, 1.0)
            group = groups.setdefault((matrix, factor), {"params": [], "adapted": [], "factor": factor})
            group["decay"] = self.settings.weight_decay if matrix else 0.0
            group["params"].append(self.targets[name])
            if self.targets[name] is not value:
                group["adapted"].append(value)
        return list(groups.values())

    @torch.no_grad()
    def _adapt(self, group: Mapping[str, Any], rate: float) -> None:
        """Move matrices by LAMB's step, given the negative of AdamW's direction in the group's "params"."""
        weights = [value for value in group["adapted"] if value.grad is not None]
        steps = [step for step in group["params"] if step.grad is not None]
        if not weights:
            return
        torch._foreach_add_(steps, weights, alpha=-group["decay"])
        norms = torch.stack(torch._foreach_norm(weights))  # (weights,)
        lengths = torch.stack(torch._foreach_norm(steps))  # (weights,)
        ratios = torch.where((norms > 0) & (lengths > 0), norms / lengths, 1.0)  # (weights,)
        torch._foreach_addcmul_(weights, steps, (rate * ratios).unbind())
        torch._foreach_zero_(steps)
