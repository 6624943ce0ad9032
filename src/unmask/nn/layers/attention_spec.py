"""The interface of attention kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.data.batches.batch import Tokens
from unmask.data.batches.groups import Group
from unmask.nn.layers.rotary import Rotation

Bias = Callable[[Tensor, Tensor, Tokens, Group], Tensor]
"""Maps a group's queries and keys, (sequences, heads, longest, head width) each, to a bias on its scores that can be
broadcast to (sequences, heads, longest, longest). MPNet's depends only on the group's length, DeBERTa's also on queries
and keys. Queries are not scaled."""


@dataclass(frozen=True)
class AttentionSpec:
    """Parameters of an attention kernel.

    Attributes:
        heads: number of heads.
        dropout: dropout rate on the attention probabilities; 0 outside training.
        causal: whether tokens do not attend to later tokens.
        rotation: rotation of queries and keys; None: no rotation.
        bias: added to the scaled scores; supported only by the plain kernel.
        window: maximum distance of the tokens that a token attends to, on each side; None: any distance.
        terms: number of products of which a score is the sum, with those in the bias: all are divided by the root of
            this times the width of a head. Only the plain kernel supports more than one.
    """

    heads: int
    dropout: float = 0.0
    causal: bool = False
    rotation: Rotation | None = None
    bias: Bias | None = None
    window: int | None = None
    terms: int = 1

    @property
    def limited(self) -> bool:
        """Whether the distance of two tokens determines if one attends to the other."""
        return self.causal or self.window is not None

    def is_local(self, longest: int) -> bool:
        """Return whether the window excludes tokens of sequences of this length."""
        return self.window is not None and self.window < longest - 1

    def attends(self, distances: Tensor) -> Tensor:
        """Return whether tokens attend to others at these distances (key position minus query position), bool."""
        within = distances <= 0 if self.causal else torch.ones_like(distances, dtype=torch.bool)
        return within if self.window is None else within & (distances.abs() <= self.window)


Kernel = Callable[[Tensor, Tokens, AttentionSpec], Tensor]
"""Computes attention: maps queries, keys and values of all heads, (rows, 3 * width), to the tokens' outputs,
(rows, width). On a CPU there may be more rows than tokens (`fill_up` in nn/layers/linear.py): their outputs are 0."""
