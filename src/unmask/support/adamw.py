"""AdamW's step on float32 weights whose copy in bf16 computes, as one loop over memory, which reads gradients as they
are, and writes weights, moments and copy (Loshchilov and Hutter 2019, algorithm 2).

torch takes a pass each to convert the gradients, for their norm, for the step and to round the weights. In fine-tuning,
whose steps have few tokens, these are a sixth of a step.

It is a C extension (_adamw.c), which pip compiles where there is a C compiler; elsewhere nothing `fits`. Arguments are
checked here, as the extension gets addresses.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

try:
    from unmask.support import _adamw
except ImportError:  # no compiler, or torch has another library for its threads
    _adamw = None  # type: ignore[assignment]

TYPES = (torch.float32, torch.bfloat16)
"""Types of gradients."""


class Weights:
    """Weights, what belongs to each of them, and where all of that is.

    Args:
        weights, first, second: weights and their moments, float32, of one shape.
        copies: the weights in bf16.

    Raises:
        ValueError: weights do not fit, or what belongs to them has another type or shape.
    """

    def __init__(self, weights: Tensor, first: Tensor, second: Tensor, copies: Tensor) -> None:
        self.tensors = (weights, first, second, copies)
        self.at = self._check()

    def row(self, grads: Tensor) -> tuple[int, ...]:
        """Return the row of the extension's table.

        Raises:
            ValueError: gradients are not as `reads` says, or have another shape; or as for the class.
        """
        weights, first, second, copies = (tensor.data_ptr() for tensor in self.tensors)
        if (weights, first, second, copies) != self.at:  # a tensor was given other memory
            self.at = self._check()
        if not reads(grads) or grads.shape != self.tensors[0].shape:
            raise ValueError("adjacent gradients are needed, in float32 or bf16, as many as weights")
        return weights, grads.data_ptr(), first, second, copies, grads.numel(), grads.dtype is torch.bfloat16

    def _check(self) -> tuple[int, ...]:
        """Check all tensors, and return where they are."""
        weights, *moments, copies = self.tensors
        if not fits(weights, copies) or not all(fits(moment, copies) for moment in moments):
            raise ValueError("adjacent weights and moments in float32 on the CPU are needed, and copies in bf16")
        return tuple(tensor.data_ptr() for tensor in self.tensors)


def fits(weights: Tensor, copies: Tensor) -> bool:
    """Return whether `step` computes weights and their copies: on the CPU, adjacent, in float32 and in bf16."""
    dtypes = weights.dtype is torch.float32 and copies.dtype is torch.bfloat16
    adjacent = weights.is_contiguous() and copies.is_contiguous() and weights.shape == copies.shape
    return dtypes and adjacent and weights.is_cpu and copies.is_cpu and _adamw is not None


def step(
    parameters: Iterable[tuple[Weights, Tensor]],
    *,
    rate: float,
    betas: tuple[float, float],
    epsilon: float,
    decay: float,
    taken: int,
    excess: float,
) -> None:
    """Take AdamW's step, with bias correction; see torch.optim.AdamW.

    Args:
        parameters: what to change, and its gradients, which are only read.
        rate, betas, epsilon, decay: learning rate, decay rates of the moments, epsilon, weight decay.
        taken: number of steps that the moments are of, with this one.
        excess: factor by which gradients are too large.

    Raises:
        ValueError: see `Weights` and `Weights.row`.
    """
    table, kept = array("q"), []
    for weights, grads in parameters:
        kept.append(grads := grads.contiguous())  # until they have been read
        table.extend(weights.row(grads))
    first, second = betas
    numbers = 1 - rate * decay, excess, first, 1 - first, second, 1 - second
    corrected = rate / (1 - first**taken), (1 - second**taken) ** 0.5
    _adamw.step(torch.get_num_threads(), table.tobytes(), *numbers, *corrected, epsilon)


def reads(grads: Tensor) -> bool:
    """Return whether the extension reads gradients: adjacent ones on the CPU, in float32 or bf16."""
    return _adamw is not None and grads.is_cpu and grads.dtype in TYPES and grads.is_contiguous()


def norm(gradients: Sequence[Tensor]) -> Tensor:
    """Return the Euclidean norm of the numbers of all gradients together, () float32.

    Raises:
        ValueError: one is not on the CPU, or of another type.
    """
    gradients = [grads.contiguous() for grads in gradients]
    if not all(map(reads, gradients)):
        raise ValueError("gradients on the CPU are needed, in float32 or bf16")
    table = array("q")
    for grads in gradients:
        table.extend((0, grads.data_ptr(), 0, 0, 0, grads.numel(), grads.dtype is torch.bfloat16))
    return torch.tensor(_adamw.squares(torch.get_num_threads(), table.tobytes()) ** 0.5)
