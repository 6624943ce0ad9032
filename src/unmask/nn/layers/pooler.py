"""Poolers, which return the vector of a text.

A pooler is a dense layer on the hidden state of [CLS] (Devlin et al. 2019, section 4.1). That of ModernBERT is
normalized and has no biases; it is its masked-LM head, and single tokens are read through it too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from unmask.nn.layers.linear import Linear
from unmask.nn.layers.norm import LayerNorm

PoolerActivation = Literal["tanh", "gelu", "gelu_tanh", "relu", "silu"]
ACTIVATIONS: dict[PoolerActivation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": gelu,
    "gelu_tanh": lambda x: gelu(x, approximate="tanh"),
    "relu": torch.relu,
    "silu": silu,
}


class Pooler(Linear):
    """A dense layer with an activation: tanh in BERT, GELU or ReLU in other families.

    Args:
        width: width of the input and output.
        activation: name of the activation.
    """

    def __init__(self, width: int, activation: PoolerActivation = "tanh") -> None:
        super().__init__(width, width)
        self.activation = activation

    def forward(self, x: Tensor, activation: nn.Module | None = None) -> Tensor:
        """Return the pooled vectors: (texts, width) to (texts, width)."""
        return ACTIVATIONS[self.activation](super().forward(x, activation))


class NormedPooler(nn.Module):
    """A dense layer without bias, GELU, and LayerNorm without bias.

    Args:
        width: width of the input and output.
        epsilon: epsilon of the LayerNorm.
    """

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.dense = Linear(width, width, bias=False)
        self.norm = LayerNorm(width, epsilon, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Return the pooled vectors of texts or tokens: (rows, width) to (rows, width)."""
        return self.norm(gelu(self.dense(rows)))
