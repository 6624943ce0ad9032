"""AdamW, LAMB and Muon, with a learning rate that is a pure function of the step, and state by parameter name.

Input: a module with gradients, the recipe's [optimizer], and the encoder's layer groups from the bottom up. Output: the
module with updated parameters.

**Muon** (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon) takes orthogonalized momentum as the direction
of the matrices of the encoder's layers. `directions` returns, for matrices, those of the same shape whose singular
values are all about 1: U V^T of the singular value decomposition U S V^T, approximated by five Newton-Schulz
iterations, which are products of matrices and so are as fast in bf16 as training itself. The iterations map singular
values from about 0.01 up to 1 into [0.7, 1.2]; exactly 1 is not needed. Matrices of one shape are multiplied as one
batch. The step is scaled by 0.2 sqrt(larger dimension), so that its root mean square is that of AdamW's (Liu et al.
2025 (Moonlight), section 2.2) and both can have a similar learning rate. Query, key and value are orthogonalized apart,
as are other matrices stacked in one weight. Embeddings, norms, biases and everything above the encoder have AdamW's
step.

**LAMB** (You et al. 2020, Algorithm 2, with the identity for phi) scales AdamW's step on each matrix to the norm of
that matrix, so that very large batches can be trained at very large learning rates. As in google-research/albert,
biases and norms keep AdamW's step, the ratio is 1 if a norm is zero, and ratios are not clipped. Unlike there, query,
key and value are one matrix here and share a ratio. ALBERT and BERT omit the bias correction, which the paper's
Algorithm 2 includes.

**Weight decay.** Matrices decay, biases and norms do not (the embeddings do, as in google-research/bert).

**Layer-wise decay of the learning rate** (Howard and Ruder 2018, section 3.2; Clark et al. 2020, appendix B). In an
encoder with L layers, the learning rate of layer l (0: the embeddings) is learning_rate * layer_decay^(L + 1 - l); that
of the modules above the encoder (pooler and heads) is learning_rate. So the top layer has layer_decay^1; ELECTRA's code
has layer_decay^2 there, which its author calls a mistake (google-research/electra#51). XLNet counts from the top layer
instead, and its code excludes the embeddings. A decoder that is tied to the embeddings has their learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unmask.support import adamw

if TYPE_CHECKING:
    from unmask.training.optimizer_settings import OptimizerSettings
    from unmask.training.shards import Shards

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
SCALE = 0.2
"""Root mean square of an update at a learning rate of 1."""


def directions(matrices: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return the scaled direction of each matrix, in the dtype of the computation.

    Args:
        matrices: matrices of any shapes, (rows, columns) each.
        dtype: dtype of the products.
    """
    shapes: dict[torch.Size, list[int]] = {}
    for index, matrix in enumerate(matrices):
        shapes.setdefault(matrix.shape, []).append(index)
    results: list[Tensor] = list(matrices)
    for shape, indices in shapes.items():
        stacked = torch.stack([matrices[index] for index in indices]).to(dtype)  # (matrices, rows, columns)
        torch.mul(orthogonalize(stacked), SCALE * max(shape) ** 0.5, out=stacked)
        for index, direction in zip(indices, stacked, strict=True):
            results[index] = direction
    return results


def orthogonalize(x: Tensor) -> Tensor:
    """Return matrices with the same singular vectors and singular values of about 1.

    Shape:
        x: (matrices, rows, columns).
    """
    first, third, fifth = COEFFICIENTS
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT  # (matrices, rows, rows)
        polynomial = torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth)
        x = torch.baddbmm(x, polynomial, x, beta=first)
    return x.mT if tall else x


def norms(tensors: list[Tensor]) -> Tensor:
    """Return the Euclidean norm of each tensor, (tensors,)."""
    return torch.stack(torch._foreach_norm(tensors))


def total_norm(tensors: list[Tensor]) -> Tensor:
    """Return the Euclidean norm of the numbers of all tensors together, (); 0 without tensors.

    For float32 on a CPU a library of linear algebra computes it, in half the time of torch's reduction; `adamw` reads
    bf16 as it is.
    """
    if not tensors:
        return torch.zeros(())
    if any(tensor.dtype == torch.bfloat16 for tensor in tensors):  # of which torch's norms are rounded to bf16
        return adamw.norm(tensors)
    if all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors):
        squares = [torch.dot(numbers, numbers) for numbers in (tensor.reshape(-1) for tensor in tensors)]
        return torch.stack(squares).sum().sqrt()
    return norms(tensors).norm()


HEADS = "objectives."
"""Start of the names of the parameters of heads in a learner."""
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""The state of each parameter with AdamW's or LAMB's step."""
MOMENTUM = "momentum"
"""The state of each parameter with Muon's step."""
MEAN, AVERAGED = "mean", "averaged_steps"
"""The mean of each parameter's values after the last steps, and the number of these steps."""


@dataclass
class ParameterGroup:
    """Parameters with the same hyperparameters.

    Attributes:
        special: whether they have the step of the optimizer's kind, and not AdamW's.
        factor: factor of their learning rate.
        decay: their weight decay.
        names: names of the parameters.
    """

    special: bool
    factor: float
    decay: float
    names: list[str] = field(default_factory=list)


class Optimizer:
    """AdamW over a module, and base class of the other kinds; see the module's docstring for the conventions.

    A subclass has `is_special`, which parameters have its step and not AdamW's, and `update`, which takes that step.
    AdamW is torch's fused kernel if there is one, called without torch.optim, which takes a second to import; for
    parameters with copies in bf16 it is that of support/adamw.py.

    Args:
        module: module whose parameters are trained.
        settings: the recipe's settings.
        layer_groups: the encoder's (`Encoder.layer_groups`), for layer-wise learning rates and for Muon.
        tokens: mean tokens per step, which half-lives refer to.
        dtype: dtype of Muon's products.
        shards: this process's rows of the parameters, if others have the rest.
        copies: by parameter, the copy in bf16 that computes. The step writes those that AdamW's can, and reads the
            copy's gradient where the parameter has none.

    Attributes:
        names: the parameters by name; with shards, this process's rows of them.
        groups: the parameters, grouped by their hyperparameters.
        moments: the state of each parameter by name, and by the names in `state_names` for special ones.
        copies: the copies that the step writes, by name.
    """

    state_names: tuple[str, ...] = MOMENTS

    def __init__(
        self,
        module: nn.Module,
        settings: OptimizerSettings,
        layer_groups: Sequence[nn.Module] = (),
        *,
        tokens: float = 1.0,
        dtype: torch.dtype = torch.float32,
        shards: Shards | None = None,
        copies: Mapping[Tensor, Tensor] | None = None,
    ) -> None:
        self.settings = settings
        self.betas = settings.decays(tokens)
        self.dtype = dtype
        self.names: dict[str, Tensor] = {
            name: value for name, value in module.named_parameters() if value.requires_grad
        }
        self.groups = self._group(layer_groups)
        ordinary = [name for group in self.groups if not group.special for name in group.names]
        pairs = [(name, (copies or {}).get(self.names[name])) for name in ordinary]
        self.copies = {name: copy for name, copy in pairs if copy is not None and adamw.fits(self.names[name], copy)}
        self.shards = shards
        if shards is not None:
            self.names = {name: shards.parts[name] for name in self.names}
        self.targets: dict[str, Tensor] = dict(self.names)
        self.moments: dict[str, dict[str, Tensor]] = {}
        self.means: dict[str, Tensor] = {}
        self.averaged = 0
        self._taken: dict[str, int] = {}
        self._written: dict[str, adamw.Weights] = {}
        self._excess: Tensor | None = None

    def is_special(self, value: Tensor, *, matrix: bool, inner: bool) -> bool:
        """Return whether a parameter has the step of the optimizer's kind.

        Args:
            value: the parameter.
            matrix: whether it has two or more dimensions and is no bias.
            inner: whether it is in the encoder's layers, and not in the embeddings or above the encoder.
        """
        return False

    def update(self, group: ParameterGroup, factor: float) -> None:
        """Take the step of a group of special parameters, where `factor` is that of the schedule."""
        raise NotImplementedError

    def gradient(self, name: str) -> Tensor | None:
        """Return the clipped gradient of a parameter, if it has one."""
        grad = self._grad(name)
        return grad if grad is None or self._excess is None else grad / self._excess

    def gradients(self) -> list[Tensor]:
        """Return the existing gradients, in the order of the names."""
        return [grad for name in self.names if (grad := self._grad(name)) is not None]

    def clip(self, scale: float = 1.0) -> Tensor:
        """Return the norm of the whole gradient, (), on its device; the next step scales it down to the maximum.

        Args:
            scale: factor by which all gradients are too large; the next step divides them by it, too.
        """
        norm = total_norm(self.gradients())
        norm = norm if self.shards is None else self.shards.norms(norm)
        norm = norm if scale == 1 else norm / scale
        # as torch's clip_grad_norm_; the fused kernel divides while reading, which saves a pass over all gradients
        self._excess = ((norm + 1e-6) / (self.settings.clip or math.inf)).clamp(min=1).float()
        if scale != 1:
            self._excess *= scale
        return norm

    @torch.no_grad()
    def step(self, factor: float) -> float:
        """Apply and clear the gradients; return the learning rate.

        Parameters without a gradient are not changed: those of a head that no objective of this stage uses.

        Without bias correction the update is m / (sqrt(v) + epsilon), which is torch's corrected update with the rate
        and epsilon divided by the correction's factors. These depend on the steps that a parameter has taken.
        """
        rate = self.settings.learning_rate * factor
        for group in self.groups:
            if group.special:
                self.update(group, factor)
                continue
            for taken, names in self._with_gradient(group).items():
                scale, root = self._uncorrected(taken)
                self._adamw(names, scale * (rate * group.factor), group.decay / scale, root)
        self.zero_grad()
        return rate

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        for value in [*self.names.values(), *self.copies.values()]:
            value.grad = None
        self._excess = None

    @torch.no_grad()
    def average(self) -> None:
        """Include the current weights in the means."""
        self.averaged += 1
        if not self.means:
            self.means = {name: torch.zeros_like(value) for name, value in self.names.items()}
        torch._foreach_lerp_([*self.means.values()], [*self.names.values()], 1 / self.averaged)

    def forget_means(self) -> None:
        """Begin the means again."""
        self.means, self.averaged = {}, 0

    @torch.no_grad()
    def take_means(self) -> int:
        """Replace the weights by their means, if there are any; return the number of steps they are taken over."""
        if self.means:
            torch._foreach_copy_([self.names[name] for name in self.means], [*self.means.values()])
        return self.averaged

    def state(self) -> dict[str, Tensor]:
        """Return the moments and the means by parameter name, empty before the first step."""
        tensors = {f"{name}.{key}": value for name, moments in self.moments.items() for key, value in moments.items()}
        if self.averaged:
            tensors |= {f"{name}.{MEAN}": mean for name, mean in self.means.items()}
            tensors[AVERAGED] = torch.tensor(self.averaged)
        return tensors

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Load what `state` returned.

        A parameter that no objective has used yet (such as the pooler without pairs) has no moments.
        """
        self.moments = {
            name: {key: state[f"{name}.{key}"].clone().to(self.names[name].device) for key in keys}
            for group in self.groups
            for keys in [self.state_names if group.special else MOMENTS]
            for name in group.names
            if f"{name}.{keys[0]}" in state
        }
        self._written = {}
        self._taken = {name: int(moments["step"]) for name, moments in self.moments.items() if "step" in moments}
        self.averaged = int(state.get(AVERAGED, 0))
        self.means = (
            {name: state[f"{name}.{MEAN}"].to(value.device) for name, value in self.names.items()}
            if self.averaged
            else {}
        )

    def _group(self, layer_groups: Sequence[nn.Module]) -> list[ParameterGroup]:
        """Group the parameters by weight decay and factor of the learning rate."""
        share: dict[Tensor, float] = {
            value: self.settings.layer_decay ** (len(layer_groups) - depth)
            for depth, layer_group in enumerate(layer_groups)
            for value in layer_group.parameters()
        }
        inner = {value for layer_group in layer_groups[1:] for value in layer_group.parameters()}
        groups: dict[tuple[bool, bool, float], ParameterGroup] = {}
        for name, value in self.names.items():
            matrix = value.ndim >= 2 and not name.endswith("bias")  # XLNet's biases have a row for each head
            factor = share.get(value, 1.0)
            if name.startswith(HEADS):
                factor *= self.settings.head_rate or 1.0
            special = self.is_special(value, matrix=matrix, inner=value in inner)
            new = ParameterGroup(special, factor, self.settings.weight_decay if matrix else 0.0)
            groups.setdefault((special, matrix, factor), new).names.append(name)
        return list(groups.values())

    def _grad(self, name: str) -> Tensor | None:
        """Return the gradient of a parameter as it is, if it has one: its own, or that of its copy."""
        grad = self.names[name].grad
        return self.copies[name].grad if grad is None and name in self.copies else grad

    def _with_gradient(self, group: ParameterGroup) -> dict[int, list[str]]:
        """Return the names of a group's parameters that have a gradient, by the number of steps they have taken."""
        by_steps: dict[int, list[str]] = {}
        for name in group.names:
            if self._grad(name) is not None:
                by_steps.setdefault(self._taken.get(name, 0), []).append(name)
        return by_steps

    def _uncorrected(self, taken: int) -> tuple[float, float]:
        """Return the factors that undo the bias correction after `taken` steps: of the rate, and of the root of v."""
        if self.settings.bias_correction:
            return 1.0, 1.0
        first, second = self.betas
        root = (1 - second ** (taken + 1)) ** 0.5
        return (1 - first ** (taken + 1)) / root, root

    def _adamw(self, names: Sequence[str], rate: float, decay: float, root: float) -> None:
        """Take AdamW's step (Loshchilov and Hutter 2019, algorithm 2) on the targets of some parameters."""
        for name in names:
            if name not in self.moments:
                zeros = [torch.zeros_like(self.names[name]) for _ in range(2)]
                step = zeros[0].new_zeros((), dtype=torch.float32)  # the kernel requires float32
                self.moments[name] = dict(zip(MOMENTS, (step, *zeros), strict=True))
            self._taken[name] = self._taken.get(name, 0) + 1
        torch._foreach_add_([self.moments[name]["step"] for name in names], 1)
        epsilon = self.settings.epsilon / root
        written = [name for name in names if name in self.copies]
        if written:
            adamw.step(
                [(self._weights(name), grad) for name in written if (grad := self._grad(name)) is not None],
                rate=rate,
                betas=self.betas,
                epsilon=epsilon,
                decay=decay,
                taken=self._taken[written[0]],
                excess=1.0 if self._excess is None else float(self._excess),
            )
        if not (names := [name for name in names if name not in self.copies]):
            return
        steps, first, second = ([self.moments[name][key] for name in names] for key in MOMENTS)
        torch._fused_adamw_(
            [self.targets[name] for name in names],
            [grad for name in names if (grad := self.names[name].grad) is not None],
            first,
            second,
            [],
            steps,
            lr=rate,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=decay,
            eps=epsilon,
            amsgrad=False,
            maximize=False,
            grad_scale=self._excess,
        )

    def _weights(self, name: str) -> adamw.Weights:
        """Return a parameter whose copy is written, with its moments."""
        if name not in self._written:
            moments = self.moments[name]
            parts = self.names[name], moments["exp_avg"], moments["exp_avg_sq"], self.copies[name]
            self._written[name] = adamw.Weights(*parts)
        return self._written[name]


class Lamb(Optimizer):
    """LAMB on matrices: AdamW updates a zero tensor instead of each matrix, which then holds the direction."""

    def __init__(
        self, module: nn.Module, settings: OptimizerSettings, layer_groups: Sequence[nn.Module] = (), **options: Any
    ) -> None:
        super().__init__(module, settings, layer_groups, **options)
        adapted = [name for group in self.groups if group.special for name in group.names]
        self.targets |= {name: torch.zeros_like(self.names[name]) for name in adapted}

    def is_special(self, value: Tensor, *, matrix: bool, inner: bool) -> bool:
        """See `Optimizer`."""
        return matrix

    def update(self, group: ParameterGroup, factor: float) -> None:
        """See `Optimizer`."""
        for taken, names in self._with_gradient(group).items():
            scale, root = self._uncorrected(taken)
            self._adamw(names, scale, group.decay / scale, root)
            self._adapt(names, group.decay, self.settings.learning_rate * factor * group.factor)

    def _adapt(self, names: Sequence[str], decay: float, rate: float) -> None:
        """Update matrices by LAMB's step; their targets hold the negative of AdamW's direction."""
        weights, steps = [self.names[name] for name in names], [self.targets[name] for name in names]
        torch._foreach_add_(steps, weights, alpha=-decay)
        sizes, lengths = norms(weights), norms(steps)  # (weights,), (weights,)
        if self.shards is not None:
            sizes, lengths = self.shards.norms(torch.stack([sizes, lengths]))
        ratios = torch.where((sizes > 0) & (lengths > 0), sizes / lengths, 1.0)  # (weights,)
        torch._foreach_addcmul_(weights, steps, (rate * ratios).unbind())
        torch._foreach_zero_(steps)


class Muon(Optimizer):
    """Muon, with Nesterov momentum, on the matrices of the encoder's layers.

    Attributes:
        stacked: by name, the number of matrices in weights that consist of several, such as query, key and value; the
            modules that have these weights have an attribute `stacked`.
    """

    state_names = (MOMENTUM,)

    def __init__(
        self, module: nn.Module, settings: OptimizerSettings, layer_groups: Sequence[nn.Module] = (), **options: Any
    ) -> None:
        super().__init__(module, settings, layer_groups, **options)
        parts: list[tuple[str, Any]] = [part for part in module.named_modules() if hasattr(part[1], "stacked")]
        self.stacked: dict[str, int] = {f"{name}.weight".lstrip("."): part.stacked for name, part in parts}

    def is_special(self, value: Tensor, *, matrix: bool, inner: bool) -> bool:
        """See `Optimizer`."""
        return matrix and inner and value.ndim == 2

    def update(self, group: ParameterGroup, factor: float) -> None:
        """See `Optimizer`."""
        rate, momentum = self.settings.matrix_rate * factor * group.factor, self.settings.momentum
        assert momentum is not None
        names = [name for name in group.names if self.names[name].grad is not None]
        if not names:
            return
        for name in names:
            if name not in self.moments:
                self.moments[name] = {MOMENTUM: torch.zeros_like(self.names[name])}
        weights, means = [self.names[name] for name in names], [self.moments[name][MOMENTUM] for name in names]
        grads = [grad for weight in weights if (grad := weight.grad) is not None]
        if self._excess is not None:
            torch._foreach_div_(grads, self._excess)
        torch._foreach_lerp_(means, grads, 1 - momentum)
        ahead = list(torch._foreach_lerp(grads, means, momentum))  # Nesterov's: a mean of gradient and momentum
        if self.shards is None:
            steps = self._directions(names, ahead)
        else:
            steps = self.shards.on_whole(names, ahead, self._directions, self.dtype)
        torch._foreach_mul_(weights, 1 - rate * group.decay)
        torch._foreach_add_(weights, steps, alpha=-rate)

    def _directions(self, names: Sequence[str], matrices: Sequence[Tensor]) -> list[Tensor]:
        """Replace each matrix by its direction, in which stacked matrices have one each; see `directions`."""
        stacked = [self.stacked.get(name, 1) for name in names]
        parts = [part for matrix, number in zip(matrices, stacked, strict=True) for part in matrix.chunk(number)]
        torch._foreach_copy_(parts, directions(parts, self.dtype))
        return list(matrices)
