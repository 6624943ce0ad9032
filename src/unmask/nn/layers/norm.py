"""Layer normalization (Ba et al. 2016) with accurate gradients in bf16.

On a CPU torch sums the gradients of weight and bias in bf16: if those of a few thousand tokens have the same sign, a
third of their sum is lost. Here the backward pass is computed in float32, which is also faster.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """Layer normalization of each token, with the interface of torch.nn.LayerNorm."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the same shape, (tokens, width)."""
        exact = torch.is_grad_enabled() and not torch.compiler.is_compiling()
        if not x.is_cpu or x.dtype != torch.bfloat16 or not exact:
            return torch.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        normed: Tensor = _LayerNorm.apply(x, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
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
