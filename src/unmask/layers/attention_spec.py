"""What attention kernels take: the heads, and what changes their scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from unmask.batches.batch import Group, Tokens
from unmask.layers.rotary import Rotation

Bias = Callable[[Tensor, Tokens, Group], Tensor]
"""Given a group's queries (sequences, heads, longest, head width), what is added to its scores: a tensor that can be
broadcast to (sequences, heads, longest, longest). T5's reads the group's length alone, XLNet's the queries as well."""


@dataclass(frozen=True)
class AttentionSpec:
    """How a kernel attends.

    Attributes:
        heads: number of heads.
        dropout: rate on the attention probabilities; 0 outside training.
        causal: tokens attend to none that come later.
        rotation: of queries and keys; None: they are not rotated.
        bias: added to the scores, which are scaled already; only the plain kernel takes one.
    """

    heads: int
    dropout: float = 0.0
    causal: bool = False
    rotation: Rotation | None = None
    bias: Bias | None = None


Kernel = Callable[[Tensor, Tokens, AttentionSpec], Tensor]
"""Attention itself: from queries, keys and values (tokens, 3 * width), each of all heads, to what the tokens gather,
(tokens, width)."""
