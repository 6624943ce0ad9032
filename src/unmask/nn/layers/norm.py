"""Layer normalization (Ba et al. 2016) of sums, with accurate gradients in bf16.

On a CPU, dropout, the sum with a residual connection and its norm are one function (support/rows.py). Where that is not
installed, torch computes them; it sums the gradients of weight and bias in bf16, and if those of a few thousand tokens
have the same sign, a third of their sum is lost. Here the backward pass is computed in float32, which is also faster.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unmask.nn.layers.dropout import Dropout, draw
from unmask.support import rows


class LayerNorm(nn.LayerNorm):
    """Layer normalization of each token, with the interface of torch.nn.LayerNorm."""

    def forward(self, x: Tensor, onto: Tensor | None = None, dropout: Dropout | None = None) -> Tensor:
        """Return the norm of onto + dropout(x), or of x, (tokens, width) each."""
        learns = x.is_cpu and torch.is_grad_enabled() and not torch.compiler.is_compiling()
        rate = 0.0 if dropout is None else dropout.rate_now
        if learns and x.dtype is self.weight.dtype and rows.fits(x):
            normed: Tensor = _NormOfSum.apply(x, onto, self.weight, self.bias, self.eps, rate)  # type: ignore[no-untyped-call]
            return normed
        if onto is not None:
            x = onto + x if dropout is None else dropout(x, onto=onto)
        if not learns or x.dtype != torch.bfloat16:
            return torch.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        normed = _LayerNorm.apply(x, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
        return normed


class RMSNorm(nn.RMSNorm):
    """Division of each token by its root mean square (Zhang and Sennrich 2019); statistics and gradients in float32.

    Args:
        width: width of the tokens.
        epsilon: added to the mean square.
    """

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__(width, epsilon)
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the same shape and dtype, (tokens, width)."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        normed = wide * (wide.square().mean(-1, keepdim=True) + self.epsilon).rsqrt()
        return (normed * self.weight).to(x.dtype)


class _NormOfSum(torch.autograd.Function):
    """By rows.py, which draws the numbers of dropout again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, onto: Tensor | None, weight: Tensor, bias: Tensor | None, epsilon: float, rate: float
    ) -> Tensor:
        ctx.biased, ctx.dropout = bias is not None, (rate, draw()) if rate else (0.0, 0)
        y, z, statistics = rows.norm(x, weight, bias, epsilon, onto, *ctx.dropout)
        ctx.save_for_backward(z, statistics, weight)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        z, statistics, weight = ctx.saved_tensors
        of_onto, of_x, (of_weight, of_bias) = rows.norm_back(grads[0], z, statistics, weight, *ctx.dropout)
        of_bias = of_bias.to(weight.dtype) if ctx.biased else None
        return of_x, of_onto if ctx.needs_input_grad[1] else None, of_weight.to(weight.dtype), of_bias, None, None


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
        # with float32 weights, mean and reciprocal standard deviation are float32 too
        shift = None if bias is None else bias.float()
        y, mean, rstd = torch.native_layer_norm(x, weight.shape, weight.float(), shift, epsilon)
        ctx.save_for_backward(x, weight, shift, mean, rstd)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, shift, mean, rstd = ctx.saved_tensors
        wanted = [True, True, shift is not None]
        exact = torch.ops.aten.native_layer_norm_backward(
            grads[0].float(), x.float(), weight.shape, mean, rstd, weight.float(), shift, wanted
        )
        return *(grad if grad is None else grad.to(x.dtype) for grad in exact), None
