"""The input representation: token, position and segment embeddings, summed (Devlin et al. 2019, figure 2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from unmask.batches.batch import Tokens
from unmask.layers.dropout import Dropout
from unmask.layers.norm import LayerNorm


class Embeddings(nn.Module):
    """Sum of three embeddings, LayerNorm, dropout.

    Args:
        vocabulary, positions, segments: sizes of the three tables.
        width: of the embeddings.
        dropout: on the normalised sum.
        epsilon: of the LayerNorm.
    """

    def __init__(
        self, vocabulary: int, positions: int, segments: int, width: int, dropout: float, epsilon: float
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.segments = nn.Embedding(segments, width)
        self.norm = LayerNorm(width, epsilon)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tokens) -> Tensor:
        """Return the embedded tokens, (tokens, width)."""
        x = (  # (tokens, width)
            look_up(self.words.weight, tokens.ids)
            + look_up(self.segments.weight, tokens.segments)
            + look_up(self.positions.weight, tokens.places)
        )
        return self.dropout(self.norm(x))


def look_up(table: Tensor, ids: Tensor) -> Tensor:
    """Return rows of a table; the gradient of a row is summed over its occurrences in float32.

    On a CPU torch sums it in the table's own type: in bf16 1 + 1 + ... ends at 256, and a row such as [SEP]'s or a
    segment's occurs more often than that in a batch. In bf16 the table's gradient is sparse, with the rows that occur.

    Shape:
        table: (rows, width); ids: (tokens,) int64; returns (tokens, width).
    """
    if table.is_cuda or table.dtype != torch.bfloat16:
        return embedding(ids, table)
    found: Tensor = _LookUp.apply(table, ids)  # type: ignore[no-untyped-call]
    return found


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape = table.shape
        return table.index_select(0, ids)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (ids,), (grad,) = ctx.saved_tensors, grads
        rows, places = ids.unique(return_inverse=True)
        sums = grad.new_zeros(len(rows), grad.shape[1], dtype=torch.float32).index_add_(0, places, grad.float())
        values = sums.to(grad.dtype)
        return torch.sparse_coo_tensor(rows[None], values, ctx.shape, is_coalesced=True, check_invariants=False), None
