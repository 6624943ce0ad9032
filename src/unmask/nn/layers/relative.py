"""Self-attention with relative positions, in one or two streams, with memory (Yang et al. 2019 (XLNet), section 2).

Input: a stream of tokens, behind them one row for each query, and the memory of each sequence. Output: what each row
attends to. Tokens and queries have the same weights; keys are memory and tokens alone.

Scores are those of Transformer-XL (Dai et al. 2019, section 3.3): the content of a key, with a bias u of the queries,
and its distance, with a bias v; XLNet adds whether the key is in the same segment, with a third bias. Distances are
sinusoids, projected. Sequences that are read backwards have negated distances, as positions are those in the text.

`RelativeBlock` is the layer of XLNet: this attention and feed-forward, post-norm, for tokens and queries alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from unmask.nn.layers.block import FeedForward, select
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.linear import Linear
from unmask.nn.layers.relative_kernels import Inputs, Kernel, Rows, View, fused, plain
from unmask.nn.layers.rotary import CONTRAST

if TYPE_CHECKING:
    from unmask.data.batches.groups import Group
    from unmask.nn.layers.norm import LayerNorm

BASE = 10_000.0
PAIRS = 8
"""Number of pairs of sine and cosine that heads with an initial offset read."""
SLOWEST = 0.02
"""Smallest angle per position of these pairs; the first has 1, the others are a geometric series in between."""


def fastest(inputs: Inputs, rows: Rows, dropout: float) -> Tensor:
    """Compute attention with the fastest kernel that supports the inputs; see `Kernel`."""
    return (plain if torch.compiler.is_exporting() else fused)(inputs, rows, dropout)


def distance_table(most: int, width: int, like: Tensor) -> Tensor:
    """Return sines and cosines of the distances most - 1 to 1 - most, (2 * most - 1, width), in the dtype of `like`."""
    frequencies = BASE ** -(torch.arange(0, width, 2, device=like.device) / width)  # (width / 2,)
    phases = torch.arange(most - 1, -most, -1, device=like.device)[:, None] * frequencies
    return torch.cat([phases.sin(), phases.cos()], 1).to(like.dtype)


def selective_pairs(count: int, width: int) -> list[int]:
    """Return the indices of sinusoids that together distinguish a position from its neighbors, at most `count`."""
    wanted = [SLOWEST ** (number / max(1, count - 1)) for number in range(count)]  # angles per position
    return sorted({round(-math.log(angle, BASE) * width / 2) for angle in wanted})


class RelativeAttention(nn.Module):
    """See the module.

    Args:
        width: hidden size of the tokens.
        heads: number of heads; each is `width // heads` wide.
        dropout: dropout rate on the attention probabilities.

    Attributes:
        kernel: computes the attention.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.kernel: Kernel = fastest
        self.query = Linear(width, width, bias=False)
        self.key_value = Linear(width, 2 * width, bias=False)
        self.key_value.stacked = 2
        self.distance = Linear(width, width, bias=False)
        self.out = Linear(width, width, bias=False)
        self.content_bias, self.distance_bias, self.segment_bias = (
            nn.Parameter(torch.zeros(heads, width // heads)) for _ in range(3)
        )
        self.segments = nn.Parameter(torch.zeros(2, heads, width // heads))

    @torch.no_grad()
    def attend_at(self, offsets: Sequence[int]) -> None:
        """Initialize the first heads to attend to the keys at these offsets in the text, -1 being the previous token.

        Some rows of the projection of distances then pass on sinusoids, and the bias of the queries for distances has
        the phases of the offset.
        """
        width = self.out.in_features
        size = width // self.heads
        pairs = selective_pairs(min(PAIRS, size // 2), width)
        angles = torch.tensor([BASE ** (-2 * pair / width) for pair in pairs])
        gain = CONTRAST * size**0.5 / (1 - angles.cos()).sum()
        rows = torch.zeros(size, width)
        for number, pair in enumerate(pairs):
            rows[2 * number, pair] = rows[2 * number + 1, width // 2 + pair] = 1
        for head, offset in zip(range(self.heads), offsets, strict=False):
            phases = -offset * angles  # the distance is the position of the query minus that of the key
            self.distance.weight.view(self.heads, size, width)[head] = rows
            bias = gain * torch.stack([phases.sin(), phases.cos()], 1).view(-1)
            self.distance_bias[head].zero_()[: len(bias)] = bias

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        table: Tensor,
        views: Sequence[View],
        rows: Tensor | None = None,
        *,
        queries_alone: bool = False,
    ) -> Tensor:
        """Return the attention output of tokens and queries.

        Args:
            x: (tokens + queries or more rows, width).
            memory: (sequences, memory, width); None: there is no memory.
            table: sinusoids of distances; see `View.distances`.
            views: what the rows of each group attend to.
            rows: if given, the rows to return, (rows,) int64.
            queries_alone: whether tokens need no output; only that of the queries is returned.

        Returns:
            (tokens + queries or more rows, width), or (rows, width).
        """
        tokens = views[-1].group.stop
        queries = self._by_head(self.query(x[tokens:] if queries_alone else x))  # (rows, heads, head width)
        pairs = self.key_value(x[:tokens])  # (tokens, 2 * width)
        old = None if memory is None else self.key_value(memory.flatten(0, 1)).view(*memory.shape[:2], -1)
        distances = self._by_head(self.distance(table)).transpose(0, 1)  # (heads, distances, head width)
        most = max(view.keys for view in views)
        content: list[Tensor] = []
        asked: list[Tensor] = []
        for view in views:
            keys, values = self._keys(pairs, old, view)
            near = view.distances(distances, most)
            if not queries_alone:
                content.append(self._attend(queries, 0, view.tokens, keys, values, near))
            if view.queries is not None:
                first = 0 if queries_alone else tokens
                asked.append(self._attend(queries, first, view.queries, keys, values, near))
        attended = torch.cat([*content, *asked])  # (tokens + queries, width)
        attended = pad(attended, (0, 0, 0, queries.shape[0] - attended.shape[0]))
        return self.out(select(attended, rows))

    def _by_head(self, x: Tensor) -> Tensor:
        """Return (rows, heads, head width) from (rows, width)."""
        return x.view(-1, self.heads, x.shape[1] // self.heads)

    def _keys(self, pairs: Tensor, old: Tensor | None, view: View) -> Sequence[Tensor]:
        """Return keys and values of a group, (heads, sequences, keys, head width) each."""
        group = view.group
        rows = _by_sequence(pairs, group, 0)  # (sequences, longest, 2 * width)
        if old is not None:
            rows = torch.cat([old[view.sequences], rows], 1)
        return rows.view(group.sequences, view.keys, 2, self.heads, -1).permute(2, 3, 0, 1, 4).unbind(0)

    def _attend(
        self, queries: Tensor, first: int, rows: Rows, keys: Tensor, values: Tensor, distances: Tensor
    ) -> Tensor:
        """Return what rows of the stream, which start at `first`, attend to, (rows, width)."""
        group = rows.group
        query = _by_sequence(queries, group, first).permute(2, 0, 1, 3)  # (heads, sequences, longest, head width)
        query = query * query.shape[-1] ** -0.5
        content, position, segment = (
            query + (bias * query.shape[-1] ** -0.5)[:, None, None]
            for bias in (self.content_bias, self.distance_bias, self.segment_bias)
        )
        differs = None
        if rows.other is not None:  # a score that all keys have in common cancels: that of the same segment
            contrast = self.segments[1] - self.segments[0]  # (heads, head width)
            differs = (segment * contrast[:, None, None]).sum(-1, keepdim=True)
        inputs = Inputs(content, position, differs, keys, values, distances)
        attended = self.kernel(inputs, rows, self.dropout if self.training else 0.0)
        if rows.seeing is not None:
            attended = attended * rows.seeing
        attended = attended.permute(1, 2, 0, 3).reshape(group.sequences * group.longest, -1)
        return attended if group.index is None else attended.index_select(0, group.index)


def _by_sequence(x: Tensor, group: Group, first: int) -> Tensor:
    """Return the rows of a group, which is counted from `first`, by sequence: (sequences, longest, ...)."""
    slots = group.slots
    rows = x[first + group.start : first + group.stop] if slots is None else x.index_select(0, slots + first)
    return rows.view(group.sequences, group.longest, *x.shape[1:])


class RelativeBlock(nn.Module):
    """Relative attention and feed-forward sublayers, each with a residual connection and LayerNorm.

    Args:
        attention, attention_norm: the attention and its LayerNorm.
        feed_forward, feed_forward_norm: the feed-forward sublayer and its LayerNorm.
        dropout: dropout rate on both sublayers' outputs.
    """

    def __init__(
        self,
        attention: RelativeAttention,
        attention_norm: LayerNorm,
        feed_forward: FeedForward,
        feed_forward_norm: LayerNorm,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = attention_norm
        self.feed_forward = feed_forward
        self.feed_forward_norm = feed_forward_norm
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        table: Tensor,
        views: Sequence[View],
        rows: Tensor | None = None,
        *,
        queries_alone: bool = False,
    ) -> Tensor:
        """Return the next layer's rows; arguments and shapes are those of `RelativeAttention.forward`."""
        attended = self.attention(x, memory, table, views, rows, queries_alone=queries_alone)
        residual = x[views[-1].group.stop :] if queries_alone else select(x, rows)
        x = self.attention_norm(attended, residual, self.dropout)
        y: Tensor = self.feed_forward_norm(self.feed_forward(x), x, self.dropout)
        return y
