"""AdamW and LAMB: the learning rate a pure function of the step, the state by parameter name.

In: a module with gradients, the recipe's [optimizer], and the encoder's layer groups from the bottom up. Out: the
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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from unmask.training import kernels
from unmask.training.settings import OptimizerSettings

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What is kept of each parameter."""


@dataclass
class Group:
    """Parameters that learn alike.

    Attributes:
        factor: the share of the learning rate at which they learn.
        decay: their weight decay.
        adapted: whether LAMB scales their steps.
        names: of the parameters.
    """

    factor: float
    decay: float
    adapted: bool
    names: list[str] = field(default_factory=list)


class Optimizer:
    """AdamW or LAMB over a module; see the module's docstring for the conventions.

    AdamW is torch's fused kernel where there is one, called without torch.optim, which takes a second to load.

    Args:
        module: whose parameters are trained.
        settings: the recipe's.
        layer_groups: the encoder's (`Encoder.layer_groups`), for layer-wise learning rates.

    Attributes:
        groups: the parameters by what they have in common.
    """

    def __init__(self, module: nn.Module, settings: OptimizerSettings, layer_groups: Sequence[nn.Module] = ()) -> None:
        self.settings = settings
        self.names: dict[str, Tensor] = {
            name: value for name, value in module.named_parameters() if value.requires_grad
        }
        self.groups = self._group(layer_groups)
        # LAMB: AdamW steps on a zero in place of each matrix, and so leaves its direction there
        adapted = {name for group in self.groups if group.adapted for name in group.names}
        self.targets: dict[str, Tensor] = {
            name: torch.zeros_like(value) if name in adapted else value for name, value in self.names.items()
        }
        self.moments: dict[str, dict[str, Tensor]] = {}
        self._excess: Tensor | None = None

    def gradients(self) -> list[Tensor]:
        """Return those that there are, in the order of the names."""
        return [value.grad for value in self.names.values() if value.grad is not None]

    def clip(self) -> float:
        """Return the gradient's norm; in the next step it is scaled down to the largest one allowed."""
        norm = nn.utils.get_total_norm(self.gradients())
        # as torch's clip_grad_norm_; the fused kernel divides as it reads, which saves a pass over all gradients
        self._excess = ((norm + 1e-6) / (self.settings.clip or math.inf)).clamp(min=1).float()
        return float(norm)

    @torch.no_grad()
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
        for group in self.groups:
            names = [name for name in group.names if self.names[name].grad is not None]
            if not names:
                continue
            self._adamw(names, scale * (1.0 if group.adapted else rate * group.factor), group.decay / scale, root)
            if group.adapted:
                self._adapt(names, group.decay, rate * group.factor)
        self.forget()
        return rate

    def forget(self) -> None:
        """Drop the gradients."""
        for value in self.names.values():
            value.grad = None
        self._excess = None

    def state(self) -> dict[str, Tensor]:
        """Return the moments by parameter name, empty before the first step."""
        return {f"{name}.{key}": value for name, moments in self.moments.items() for key, value in moments.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state` returned.

        A parameter that no objective reads (the pooler without pairs) has no moments.
        """
        self.moments = {
            name: {key: state[f"{name}.{key}"].clone().to(value.device) for key in MOMENTS}
            for name, value in self.names.items()
            if f"{name}.step" in state
        }

    def _group(self, layer_groups: Sequence[nn.Module]) -> list[Group]:
        """Gather the parameters that decay alike and learn at the same share of the rate."""
        share: dict[Tensor, float] = {
            value: self.settings.layer_decay ** (len(layer_groups) - depth)
            for depth, layer_group in enumerate(layer_groups)
            for value in layer_group.parameters()
        }
        groups: dict[tuple[bool, float], Group] = {}
        for name, value in self.names.items():
            matrix, factor = value.ndim >= 2, share.get(value, 1.0)
            new = Group(factor, self.settings.weight_decay if matrix else 0.0, matrix and self.settings.kind == "lamb")
            groups.setdefault((matrix, factor), new).names.append(name)
        return list(groups.values())

    def _adamw(self, names: Sequence[str], rate: float, decay: float, root: float) -> None:
        """Take AdamW's step on the targets of some parameters."""
        for name in names:
            if name not in self.moments:
                zeros = [torch.zeros_like(self.names[name]) for _ in range(2)]
                step = zeros[0].new_zeros((), dtype=torch.float32)  # as the kernel wants it
                self.moments[name] = dict(zip(MOMENTS, (step, *zeros), strict=True))
        steps, first, second = ([self.moments[name][key] for name in names] for key in MOMENTS)
        kernels.increment_(steps)
        kernels.adamw_(
            [self.targets[name] for name in names],
            [grad for name in names if (grad := self.names[name].grad) is not None],
            first,
            second,
            steps,
            rate=rate,
            betas=self.settings.betas,
            decay=decay,
            epsilon=self.settings.epsilon / root,
            divisor=self._excess,
        )

    def _adapt(self, names: Sequence[str], decay: float, rate: float) -> None:
        """Move matrices by LAMB's step, given the negative of AdamW's direction in their targets."""
        weights, steps = [self.names[name] for name in names], [self.targets[name] for name in names]
        kernels.add_scaled_(steps, weights, -decay)
        norms, lengths = kernels.norms(weights), kernels.norms(steps)  # (weights,), (weights,)
        ratios = torch.where((norms > 0) & (lengths > 0), norms / lengths, 1.0)  # (weights,)
        kernels.add_products_(weights, steps, rate * ratios)
        kernels.zero_(steps)
