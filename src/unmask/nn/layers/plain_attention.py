"""The interface of attention kernels, attention with ordinary PyTorch operations, and biases of its scores.

`plain` is for export, for scores before the softmax, and for biases. Outputs and gradients equal those of the faster
kernels, but it needs no custom autograd function, no private operator and no data-dependent shapes.

`DistanceBias` has relative positions as biases, one per head and bucket of distances (Raffel et al. 2020 (T5), section
2.1): distances share a bucket the more, the longer they are. Half of the buckets are for tokens before, half for those
after. All layers share the table, as in MPNet (modeling_mpnet.py of transformers 5).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, pad

if TYPE_CHECKING:
    from unmask.data.batches.groups import Group
    from unmask.data.batches.tokens import Tokens
    from unmask.nn.layers.rotary import Rotation

Bias: TypeAlias = "Callable[[Tensor, Tensor, Tokens, Group], Tensor]"
"""Maps a group's queries and keys, (sequences, heads, longest, head width) each, to a bias on its scores that can be
broadcast to (sequences, heads, longest, longest). MPNet's depends only on the group's length, DeBERTa's also on queries
and keys. Queries are not scaled."""
Kernel: TypeAlias = "Callable[[Tensor, Tokens, AttentionSpec], Tensor]"
"""Computes attention: maps queries, keys and values of all heads, (rows, 3 * width), to the tokens' outputs,
(rows, width). On a CPU there may be more rows than tokens (`fill_up` in nn/layers/linear.py): their outputs are 0."""
BUCKETS = 32
"""Number of buckets. transformers computes with 32, whatever the config says."""
LONGEST = 128
"""Distance from which all distances share a bucket."""


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

    @cached_property
    def undropped(self) -> AttentionSpec:
        """The same without dropout; itself, if there is none."""
        return replace(self, dropout=0.0) if self.dropout else self

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


def plain(qkv: Tensor, tokens: Tokens, spec: AttentionSpec, scores: list[Tensor] | None = None) -> Tensor:
    """Compute attention; see `Kernel`.

    Args:
        qkv: queries, keys and values, (tokens or more rows, 3 * width).
        tokens: offsets and groups of the sequences.
        spec: parameters of the attention.
        scores: if given, the inputs of the softmax are appended for each group, (sequences, heads, longest, longest):
            scaled, with the bias, and 0 at positions that are not attended to (padding; later ones, if causal; those
            outside the window).
    """
    outputs = [_attend(qkv, tokens, group, spec, scores) for group in tokens.groups]
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)  # (tokens, width)
    return pad(output, (0, 0, 0, qkv.shape[0] - output.shape[0]))  # export knows no `len`


def probabilities(qkv: Tensor, tokens: Tokens, spec: AttentionSpec) -> list[Tensor]:
    """Return the attention probabilities of each group, (sequences, heads, longest, longest), without dropout.

    Rows sum to 1; those of padding tokens are arbitrary. The arguments are those of `plain`.
    """
    return [_probabilities(*by_heads(qkv, group, spec)[:2], tokens, group, spec, None) for group in tokens.groups]


def by_heads(qkv: Tensor, group: Group, spec: AttentionSpec) -> tuple[Tensor, Tensor, Tensor]:
    """Return a group's queries, keys and values, rotated, (sequences, heads, longest, head width) each."""
    rows = qkv[group.start : group.stop] if group.slots is None else qkv.index_select(0, group.slots)
    x = rows.view(group.sequences, group.longest, 3, spec.heads, -1).permute(2, 0, 3, 1, 4)
    if spec.rotation is None:
        query, key, value = x.unbind()
        return query, key, value
    rotated = spec.rotation.rotate(x[:2], *spec.rotation.tables(group.longest, x.shape[-1], x))
    return rotated[0], rotated[1], x[2]


def attended_positions(group: Group, spec: AttentionSpec, device: torch.device) -> Tensor | None:
    """Return a mask of attended positions, broadcastable to (sequences, heads, longest, longest); None: all of them."""
    attended = None if group.attended is None else group.attended[:, None, None, :]
    if spec.limited:
        positions = torch.arange(group.longest, device=device)
        within = spec.attends(positions - positions[:, None])  # (longest, longest)
        attended = within if attended is None else attended & within
    return attended


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


def _attend(qkv: Tensor, tokens: Tokens, group: Group, spec: AttentionSpec, collected: list[Tensor] | None) -> Tensor:
    """Return the outputs of a group's tokens, (tokens of the group, width)."""
    query, key, value = by_heads(qkv, group, spec)  # each (sequences, heads, longest, head width)
    shares = _probabilities(query, key, tokens, group, spec, collected)
    if spec.dropout:  # exported programs contain no dropout, not even with rate 0
        shares = dropout(shares, spec.dropout)
    rows = (shares @ value).transpose(1, 2).reshape(group.sequences * group.longest, -1)
    return rows if group.index is None else rows.index_select(0, group.index)


def _probabilities(
    query: Tensor, key: Tensor, tokens: Tokens, group: Group, spec: AttentionSpec, collected: list[Tensor] | None
) -> Tensor:
    """Return the probabilities of a group, (sequences, heads, longest, longest); see `plain` for what is collected."""
    scale = (spec.terms * query.shape[-1]) ** -0.5
    scores = (query * scale) @ key.transpose(-1, -2)  # (sequences, heads, longest, longest)
    if spec.bias is not None:
        scores = scores + spec.bias(query, key, tokens, group)
    attended = attended_positions(group, spec, scores.device)
    if collected is not None:
        collected.append(scores if attended is None else _without_padding(scores, group, attended))
    if attended is not None:
        scores = scores.masked_fill(~attended, torch.finfo(scores.dtype).min)
    shares = scores.softmax(-1)
    if attended is not None and group.keys is not None and spec.limited:  # as with torch's fused kernel
        shares = shares.masked_fill(~attended.any(-1, keepdim=True), 0)
    return shares


def _without_padding(scores: Tensor, group: Group, attended: Tensor) -> Tensor:
    if group.real is not None:
        attended = attended & group.real[:, None, :, None]
    return scores.masked_fill(~attended, 0)
