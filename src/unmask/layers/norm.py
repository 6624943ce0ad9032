"""Layer normalisation (Ba et al. 2016), exact in bf16.

In bf16 on a CPU torch adds up the gradients of weight and bias in bf16: where those of a few thousand tokens have the
same sign, a third of their sum is lost. Here the backward pass computes in float32, which is also faster.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """Normalise each token over its width: as torch.nn.LayerNorm."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the same shape, (tokens, width)."""
        if x.is_cuda or x.dtype != torch.bfloat16 or torch.compiler.is_compiling():
            return super().forward(x)
        normed: Tensor = _LayerNorm.apply(x, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
        return normed


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        # with float32 weights, mean and deviation come out in float32 too
        y, mean, deviation = torch.native_layer_norm(x, weight.shape, weight.float(), bias.float(), epsilon)
        ctx.save_for_backward(x, weight, bias, mean, deviation)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, deviation = ctx.saved_tensors
        found = torch.ops.aten.native_layer_norm_backward(
            grads[0].float(), x.float(), weight.shape, mean, deviation, weight.float(), bias.float(), [True] * 3
        )
        return *(grad.to(x.dtype) for grad in found), None
