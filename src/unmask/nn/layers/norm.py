"""Layer normalization (Ba et al. 2016) with accurate gradients in bf16, and poolers, which return the vector of a text.

On a CPU torch sums the gradients of weight and bias in bf16: if those of a few thousand tokens have the same sign, a
third of their sum is lost. Here the backward pass is computed in float32, which is also faster.

A pooler is a dense layer on the hidden state of [CLS] (Devlin et al. 2019, section 4.1). That of ModernBERT is
normalized and has no biases; it is its masked-LM head, and single tokens are read through it too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu


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


PoolerActivation = Literal["tanh", "gelu", "gelu_tanh", "relu", "silu"]
ACTIVATIONS: dict[PoolerActivation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": gelu,
    "gelu_tanh": lambda x: gelu(x, approximate="tanh"),
    "relu": torch.relu,
    "silu": silu,
}


class Pooler(nn.Linear):
    """A dense layer with an activation: tanh in BERT, GELU or ReLU in other families.

    Args:
        width: width of the input and output.
        activation: name of the activation.
    """

    def __init__(self, width: int, activation: PoolerActivation = "tanh") -> None:
        super().__init__(width, width)
        self.activation = activation

    def forward(self, rows: Tensor) -> Tensor:
        """Return the pooled vectors: (texts, width) to (texts, width)."""
        return ACTIVATIONS[self.activation](super().forward(rows))


class NormedPooler(nn.Module):
    """A dense layer without bias, GELU, and LayerNorm without bias.

    Args:
        width: width of the input and output.
        epsilon: epsilon of the LayerNorm.
    """

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width, bias=False)
        self.norm = LayerNorm(width, epsilon, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the pooled vectors of texts or tokens: (rows, width) to (rows, width)."""
        return self.norm(gelu(self.dense(rows)))
