"""The vector of a whole text: a dense layer on the hidden state of [CLS] (Devlin et al. 2019, section 4.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

PoolerActivation = Literal["tanh", "gelu", "gelu_tanh", "relu"]
ACTIVATIONS: dict[PoolerActivation, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "gelu": gelu,
    "gelu_tanh": lambda x: gelu(x, approximate="tanh"),
    "relu": torch.relu,
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
