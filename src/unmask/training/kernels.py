"""torch's private kernels over lists of tensors, with public operators as fallbacks for versions of torch without them.

Input: lists of tensors, changed in place. Output: the same numbers either way, up to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unmask.support.capabilities import widest_float

Tensors = list[Tensor] | tuple[Tensor, ...]


def increment_(tensors: Tensors) -> None:
    """Add 1 to each tensor."""
    if hasattr(torch, "_foreach_add_"):
        torch._foreach_add_(tensors, 1)
        return
    for tensor in tensors:
        tensor.add_(1)


def add_scaled_(tensors: Tensors, others: Tensors, scale: float) -> None:
    """Add `scale` times the tensor of `others` to each tensor."""
    if hasattr(torch, "_foreach_add_"):
        torch._foreach_add_(tensors, others, alpha=scale)
        return
    for tensor, other in zip(tensors, others, strict=True):
        tensor.add_(other, alpha=scale)


def add_products_(tensors: Tensors, others: Tensors, factors: Tensor) -> None:
    """Add the tensor of `others`, times its factor, to each tensor; `factors` is (tensors,)."""
    if hasattr(torch, "_foreach_addcmul_"):
        torch._foreach_addcmul_(tensors, others, factors.unbind())
        return
    for tensor, other, factor in zip(tensors, others, factors.unbind(), strict=True):
        tensor.addcmul_(other, factor)


def norms(tensors: Tensors) -> Tensor:
    """Return the Euclidean norm of each tensor, (tensors,)."""
    if hasattr(torch, "_foreach_norm"):
        return torch.stack(torch._foreach_norm(tensors))
    return torch.stack([torch.linalg.vector_norm(tensor) for tensor in tensors])


def total_norm(tensors: Tensors) -> Tensor:
    """Return the Euclidean norm of the numbers of all tensors together, (); 0 without tensors.

    For float32 on a CPU a library of linear algebra computes it, in half the time of torch's reduction.
    """
    if not tensors:
        return torch.zeros(())
    if all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors):
        squares = [torch.dot(numbers, numbers) for numbers in (tensor.reshape(-1) for tensor in tensors)]
        return torch.stack(squares).sum().sqrt()
    return norms(tensors).norm()


def zero_(tensors: Tensors) -> None:
    """Fill each tensor with zeros."""
    if hasattr(torch, "_foreach_zero_"):
        torch._foreach_zero_(tensors)
        return
    for tensor in tensors:
        tensor.zero_()


def copy_(tensors: Tensors, others: Tensors) -> None:
    """Copy the tensor of `others` into each tensor, converting it to that tensor's dtype."""
    if hasattr(torch, "_foreach_copy_"):
        torch._foreach_copy_(tensors, others)
        return
    for tensor, other in zip(tensors, others, strict=True):
        tensor.copy_(other)


def adamw_(
    weights: Tensors,
    grads: Tensors,
    first: Tensors,
    second: Tensors,
    steps: Tensors,
    *,
    rate: float,
    betas: tuple[float, float],
    decay: float,
    epsilon: float,
    divisor: Tensor | None,
) -> None:
    """Take a step of AdamW (Loshchilov and Hutter 2019, algorithm 2), as torch.optim.AdamW does.

    Args:
        weights: parameters, updated.
        grads: their gradients.
        first, second: their moments, updated.
        steps: number of updates of each parameter, including this one.
        rate: learning rate.
        betas: decay rates of the moments.
        decay: weight decay.
        epsilon: added to the square root of the second moment.
        divisor: divisor of the gradients, a tensor of one number; None: 1.
    """
    if hasattr(torch, "_fused_adamw_"):
        torch._fused_adamw_(
            weights,
            grads,
            first,
            second,
            [],
            steps,
            lr=rate,
            beta1=betas[0],
            beta2=betas[1],
            weight_decay=decay,
            eps=epsilon,
            amsgrad=False,
            maximize=False,
            grad_scale=divisor,
        )
        return
    for weight, grad, mean, square, step in zip(weights, grads, first, second, steps, strict=True):
        scaled = grad if divisor is None else grad / divisor
        mean.lerp_(scaled, 1 - betas[0])
        square.mul_(betas[1]).addcmul_(scaled, scaled, value=1 - betas[1])
        exact = step.to(widest_float(step.device))  # float32 would lose digits
        corrections = [(1 - beta**exact).to(weight.dtype) for beta in betas]
        weight.mul_(1 - rate * decay)
        weight.sub_(rate / corrections[0] * mean / ((square / corrections[1]).sqrt() + epsilon))
