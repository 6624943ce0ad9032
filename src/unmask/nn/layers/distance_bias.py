"""Relative positions as biases of attention scores, one per head and bucket of distances (Raffel et al. 2020 (T5)).

Section 2.1: distances share a bucket the more, the longer they are. Half of the buckets are for tokens before, half for
those after. All layers share the table, as in MPNet (modeling_mpnet.py of transformers 5).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from unmask.data.batches.batch import Tokens
    from unmask.data.batches.groups import Group

BUCKETS = 32
"""Number of buckets. transformers computes with 32, whatever the config says."""
LONGEST = 128
"""Distance from which all distances share a bucket."""


class DistanceBias(nn.Embedding):
    """The biases, (buckets, heads); `bias` is the one that attention takes.

    Args:
        heads: number of heads.
    """

    def __init__(self, heads: int) -> None:
        super().__init__(BUCKETS, heads)

    def bias(self, query: Tensor, key: Tensor, tokens: Tokens, group: Group) -> Tensor:
        """Return the biases of a group's scores, (1, heads, longest, longest); see `Bias`."""
        positions = torch.arange(group.longest, device=query.device)
        return self(buckets(positions - positions[:, None])).permute(2, 0, 1)[None]


def buckets(distances: Tensor) -> Tensor:
    """Return the bucket of each distance, the position of the key minus that of the query, int64 of the same shape."""
    half = BUCKETS // 2
    exact = half // 2
    size = distances.abs()
    ratio = (size.clamp(min=1).float() / exact).log() / math.log(LONGEST / exact)
    large = (exact + (ratio * (half - exact)).long()).clamp(max=half - 1)
    return (distances > 0) * half + torch.where(size < exact, size, large)
