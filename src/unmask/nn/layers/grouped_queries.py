"""Queries, keys and values of which several heads have a key and a value in common (Ainslie et al. 2023)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unmask.nn.layers.linear import Linear


class GroupedQueries(nn.Module):
    """The projection to queries, keys and values for `SelfAttention`, without biases.

    Args:
        width: hidden size of the tokens.
        heads: number of attention heads.
        groups: number of different keys and values, a divisor of `heads`; adjacent heads are a group.
    """

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.in_features = width
        self.groups, self.members = groups, heads // groups
        self.query = Linear(width, width, bias=False)
        self.key_value = Linear(width, 2 * groups * (width // heads), bias=False)
        self.key_value.stacked = 2

    def forward(self, x: Tensor) -> Tensor:
        """Return queries, keys and values of all heads, (rows, 3 * width), from (rows, width)."""
        rows = x.shape[0]
        pairs = self.key_value(x).view(rows, 2, self.groups, 1, -1).expand(-1, -1, -1, self.members, -1)
        return torch.cat([self.query(x), pairs.reshape(rows, -1)], 1)
