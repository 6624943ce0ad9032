"""A layer of XLNet: relative attention and feed-forward, post-norm, for tokens and queries alike (Yang et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from unmask.data.batches.batch import Tokens
from unmask.nn.layers.attention import select
from unmask.nn.layers.block import Activation, FeedForward, row_flops
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.relative_attention import RelativeAttention
from unmask.nn.layers.relative_view import View


class RelativeBlock(nn.Module):
    """Relative attention and feed-forward sublayers, each with a residual connection and LayerNorm.

    Args:
        width: hidden size of the tokens.
        heads: number of attention heads.
        inner: width between the two feed-forward layers.
        dropout: dropout rate on the attention probabilities and on both sublayers' outputs.
        activation: activation between the feed-forward layers.
        epsilon: epsilon of the LayerNorms.
    """

    def __init__(
        self, width: int, heads: int, inner: int, dropout: float, activation: Activation, epsilon: float
    ) -> None:
        super().__init__()
        self.attention = RelativeAttention(width, heads, dropout)
        self.attention_norm = LayerNorm(width, epsilon)
        self.feed_forward = FeedForward(width, inner, activation)
        self.feed_forward_norm = LayerNorm(width, epsilon)
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
        own = x[views[-1].group.stop :] if queries_alone else select(x, rows)
        x = self.attention_norm(self.dropout(attended, onto=own))
        return self.feed_forward_norm(self.dropout(self.feed_forward(x), onto=x))

    @property
    def row_flops(self) -> int:
        """The operations of its matrix products after the attention, for a single row."""
        return row_flops(self.attention.out, self.feed_forward)

    def forward_flops(self, tokens: Tokens, memory: int, *, queries_alone: bool = False) -> int:
        """Return the operations of the layer's matrix products; see `Encoder.forward_flops`.

        Args:
            tokens: the batch.
            memory: number of tokens of memory before each sequence.
            queries_alone: see `RelativeAttention.forward`.
        """
        width = self.attention.out.in_features
        lengths = tokens.offsets.diff().long()  # (sequences,)
        asked = 0 if tokens.queries is None else len(tokens.queries)
        attending = asked if queries_alone else asked + len(tokens.ids)
        own = row_flops(self.attention.query, self.attention.out, self.feed_forward)
        remembered = memory * len(lengths)
        most = memory + int(lengths.max())
        products = attending * own + 4 * (len(tokens.ids) + remembered) * width**2 + 2 * (2 * most - 1) * width**2
        # a row multiplies its keys twice, and the distances of all keys of its sequence once
        each = 2 * (3 * (memory + lengths) + lengths - 1) * width  # (sequences,)
        pairs = 0 if queries_alone else int((lengths * each).sum())
        if tokens.queries is not None:
            counts = tokens.offsets.diff().new_zeros(len(lengths)).long()
            sequence = (tokens.queries[:, None] >= tokens.offsets[1:]).sum(1)  # (queries,)
            counts.scatter_add_(0, sequence, sequence.new_ones(len(sequence)))
            pairs += int((counts * each).sum())
        return products + pairs
