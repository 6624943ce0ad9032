"""GELU (Hendrycks and Gimpel 2016), and GELU gated by a second linear function (Shazeer 2020).

Where gradients are computed on a CPU, both are one function each (support/rows.py): of the same accuracy as torch's,
but with the gate in the same loop over memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unmask.support import rows


class GELU(nn.GELU):
    """GELU by erf, with the interface of torch.nn.GELU."""

    def forward(self, input: Tensor) -> Tensor:
        """Return a tensor of the same shape, (rows, width)."""
        if _is_fused(self, input):
            return _Gelu.apply(input, False)  # type: ignore[no-untyped-call]
        return super().forward(input)


def gated(x: Tensor, activation: nn.Module) -> Tensor:
    """Return activation(a) * b, where a and b are the halves of x: (rows, 2 * width) to (rows, width)."""
    if _is_fused(activation, x, parts=2):
        return _Gelu.apply(x, True)  # type: ignore[no-untyped-call]
    inner, gate = x.chunk(2, 1)
    y: Tensor = activation(inner) * gate
    return y


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gated: bool) -> Tensor:
        ctx.gated = gated
        ctx.save_for_backward(x)
        return rows.gelu(x, gated=gated)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return rows.gelu_back(grads[0], *ctx.saved_tensors, gated=ctx.gated), None


def _is_fused(activation: nn.Module, x: Tensor, parts: int = 1) -> bool:
    """Return whether an activation is GELU by erf, whose gradient is computed by rows.py."""
    learns = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    return learns and isinstance(activation, GELU) and activation.approximate == "none" and rows.fits(x, parts)
