"""Disentangled attention (He et al. 2021 (DeBERTa), section 3.1), as in DeBERTa-v2 and v3, and the layers that have it.

A score is the sum of three products: of the contents of query and key, of the query with the distance of the key, and
of the key with the distance of the query. Distances have embeddings, which all layers share, and which the layers'
own projections of queries and keys convert to vectors of heads. Long distances share embeddings, in logarithmic
buckets (modeling_deberta_v2.py of transformers 5; in the first DeBERTa distances have projections of their own).

A layer consists of disentangled attention and feed-forward, post-norm, and the first one perhaps also of a convolution:
in the 900M and 1.5B models of DeBERTa-v2 it reads the input of the first layer, and its output is added to that of the
layer (ConvLayer in modeling_deberta_v2.py of transformers 5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from unmask.nn.layers.block import Block, SelfAttention, select
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.linear import Linear
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.plain_attention import AttentionSpec
from unmask.nn.layers.pooler import ACTIVATIONS, PoolerActivation

if TYPE_CHECKING:
    from unmask.data.batches.groups import Group
    from unmask.data.batches.tokens import Tokens

TERMS = 3
"""Number of products that are summed to a score."""


class Distances(nn.Module):
    """Embeddings of distances.

    Args:
        width: width of the embeddings.
        longest: distance from which all distances share an embedding.
        buckets: number of buckets in each direction; None: each distance has its own embedding.
        epsilon: epsilon of the LayerNorm on the embeddings; None: no LayerNorm.
    """

    def __init__(self, width: int, longest: int, buckets: int | None, epsilon: float | None) -> None:
        super().__init__()
        self.longest = longest
        self.buckets = buckets
        self.span = buckets or longest
        self.exact = longest if buckets is None else buckets // 2
        """Distances up to this one have an embedding each."""
        self.table = nn.Embedding(2 * self.span, width)
        self.norm = None if epsilon is None else LayerNorm(width, epsilon)

    def vectors(self) -> Tensor:
        """Return the embeddings, (2 * span, width)."""
        return self.table.weight if self.norm is None else self.norm(self.table.weight)

    def rows(self, distances: Tensor) -> Tensor:
        """Return the row of the embedding of each distance, the position of the query minus that of the key, int64."""
        bins = distances if self.buckets is None else log_buckets(distances, self.buckets, self.longest)
        return (bins + self.span).clamp(0, 2 * self.span - 1)


def log_buckets(distances: Tensor, buckets: int, longest: int) -> Tensor:
    """Return the bucket of each distance, with its sign, int64: up to half of the buckets it is the distance itself."""
    half = buckets // 2
    size = distances.abs().clamp(min=half - 1)
    scale = torch.full((), (longest - 1) / half, device=distances.device).log()
    large = torch.ceil(torch.log(size / half) / scale * (half - 1)) + half
    return torch.where(size <= half, distances, (large * distances.sign()).long())


class DisentangledAttention(SelfAttention):
    """Self-attention with distances; see the module.

    Args:
        width, heads, dropout: see `SelfAttention`.
        distances: the embeddings of distances; they belong to the body, as its layers share them.
    """

    def __init__(self, width: int, heads: int, dropout: float, distances: Distances) -> None:
        super().__init__(width, AttentionSpec(heads, dropout, terms=TERMS))
        # bound methods, so that the shared parameters are registered in one module only, and are copied with it
        self.num_distances = distances.table.num_embeddings
        self.exact = distances.exact
        self._vectors: Callable[[], Tensor] = distances.vectors
        self._rows: Callable[[Tensor], Tensor] = distances.rows
        self.position_dropout = Dropout(dropout)

    def read(self, x: Tensor, tokens: Tokens, scores: list[Tensor] | None, rows: Tensor | None) -> Tensor:
        """See `SelfAttention`."""
        near = self.near(max(group.longest for group in tokens.groups))
        vectors = self.position_dropout(self._vectors()[near])
        width = self.out.in_features
        weight, bias = self.qkv.weight[: 2 * width], self.qkv.bias[: 2 * width]
        projected = nn.functional.linear(vectors, weight, bias).view(len(vectors), 2, self.spec.heads, -1)
        queries, keys = projected.permute(1, 2, 3, 0)  # (heads, head width, distances) each

        def of_distances(query: Tensor, key: Tensor, tokens: Tokens, group: Group) -> Tensor:
            positions = torch.arange(group.longest, device=query.device)
            own = self.near(group.longest)
            at = self._rows(positions[:, None] - positions).sub(own.start).expand(*query.shape[:2], -1, -1)
            own = slice(own.start - near.start, own.stop - near.start)
            to_distance = (query @ keys[..., own]).gather(-1, at)  # (sequences, heads, longest, longest)
            # row j, column i: key j, and the distance of query i from it, which has the index of (i, j)
            from_distance = (key @ queries[..., own]).gather(-1, at.transpose(-1, -2)).transpose(-1, -2)
            return (to_distance + from_distance) * (TERMS * query.shape[-1]) ** -0.5

        return select(self.attend(self.qkv(x), tokens, scores, of_distances), rows)

    def near(self, longest: int) -> slice:
        """Return which embeddings the distances in sequences of a length have; exported programs read all."""
        middle = self.num_distances // 2
        reach = middle if torch.compiler.is_exporting() or longest > self.exact else longest
        return slice(middle - reach, middle + reach)


class Convolution(nn.Module):
    """A convolution over the tokens of each sequence, whose output is added to other rows, and LayerNorm.

    Args:
        width: hidden size of the tokens.
        size: number of tokens that an output reads, an odd number.
        dropout: dropout rate on the output.
        activation: activation of the output.
        epsilon: epsilon of the LayerNorm.
    """

    def __init__(self, width: int, size: int, dropout: float, activation: PoolerActivation, epsilon: float) -> None:
        super().__init__()
        self.reach = size // 2
        self.out = Linear(size * width, width)
        self.norm = LayerNorm(width, epsilon)
        self.dropout = Dropout(dropout)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor, onto: Tensor, tokens: Tokens, rows: Tensor | None = None) -> Tensor:
        """Return the normalized sum.

        Args:
            x: its input, (tokens or more rows, width).
            onto: the rows that its output is added to, (tokens or rows, width).
            tokens: the batch.
            rows: if given, the tokens to return, (rows,) int64.
        """
        near = select(self._neighbors(x, tokens), rows)  # (tokens or rows, size * width)
        convolved = self.activation(self.dropout(self.out(near)))
        return self.norm(onto + pad(convolved, (0, 0, 0, onto.shape[0] - convolved.shape[0])))

    def _neighbors(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Return each token beside those around it, (tokens, size * width); 0 beyond the ends of its sequence."""
        numbers = tokens.position_ids  # (tokens,)
        count = numbers.shape[0]
        x = x[:count]
        group = tokens.groups[0]
        if (real := group.real_in_batch) is not None:
            x = x * real.reshape(-1, 1)
        neighbors = []
        for offset in range(-self.reach, self.reach + 1):
            at = (torch.arange(count, device=x.device) + offset).clamp(min=0).clamp(max=count - 1)
            inside = numbers[at] == numbers + offset  # in another sequence, positions start again
            neighbors.append(x.index_select(0, at) * inside[:, None])
        return torch.cat(neighbors, 1)


class DisentangledBlock(Block):
    """Attention, feed-forward and perhaps a convolution.

    Args:
        parts: the parts of a `Block`.
        convolution: the convolution; None: there is none.
    """

    def __init__(self, *parts: Any, convolution: Convolution | None = None) -> None:
        super().__init__(*parts)
        self.convolution = convolution

    def forward(
        self, x: Tensor, tokens: Tokens, scores: list[Tensor] | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """See `Block`."""
        y = super().forward(x, tokens, scores, rows)
        return y if self.convolution is None else self.convolution(x, y, tokens, rows)
