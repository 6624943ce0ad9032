"""The input representation: token, position and segment embeddings, summed (Devlin et al. 2019, figure 2).

Attention by learned positions may start local: the first columns of the table of positions are then sinusoids, which
query and key weights read (`rotary.readers`).

Embeddings may be narrower than the layers, and are then projected (Lan et al. 2020 (ALBERT), section 3.1). Positions
may start at an offset: RoBERTa's position table begins with two unused rows. GPT's sum is not normalized.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.linear import Linear
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.rotary import AMPLITUDE, num_pairs, sinusoids

if TYPE_CHECKING:
    from unmask.data.batches.tokens import Tokens


@torch.no_grad()
def pass_on_(project: Linear) -> None:
    """Let a projection pass on the sinusoids in the first columns, and keep the scale that the readers assume."""
    size = 2 * min(num_pairs(project.in_features), num_pairs(project.out_features))
    project.weight /= project.weight.std() * project.in_features**0.5
    project.weight[:size] = 0
    project.weight[:size, :size] = torch.eye(size)


class Embeddings(nn.Module):
    """Sum of three embeddings, LayerNorm, dropout, and a projection if the layers have another width.

    Args:
        vocabulary, positions, segments: numbers of rows in the three tables; with 0 positions or segments there is no
            such table, and with 1 segment all segments share one row.
        width: width of the embeddings.
        out: width of the layers, to which the embeddings are projected; None: no projection.
        offset: number of unused rows at the beginning of the position table.
        dropout: dropout rate on the normalized sum.
        epsilon: epsilon of the LayerNorm; None: no LayerNorm.
        biased: whether the LayerNorm has a bias.
    """

    def __init__(
        self,
        vocabulary: int,
        positions: int,
        segments: int,
        width: int,
        out: int | None,
        *,
        offset: int = 0,
        dropout: float,
        epsilon: float | None,
        biased: bool = True,
    ) -> None:
        super().__init__()
        self.offset = offset
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(offset + positions, width) if positions else None
        self.segments = nn.Embedding(segments, width) if segments else None
        self.norm = None if epsilon is None else LayerNorm(width, epsilon, bias=biased)
        self.dropout = Dropout(dropout)
        self.project = None if out is None else Linear(width, out)

    @torch.no_grad()
    def begin_with_sinusoids(self, std: float) -> None:
        """Initialize the first columns of learned positions for heads that read them; see nn/layers/embeddings.py.

        Args:
            std: standard deviation of the other initial weights.
        """
        if self.positions is None:
            return
        table = sinusoids(*self.positions.weight.shape)  # (positions, 2 * pairs)
        self.positions.weight[:, : table.shape[1]] = AMPLITUDE * std * table
        if self.project is not None:
            pass_on_(self.project)

    def forward(self, tokens: Tokens) -> Tensor:
        """Return the embedded tokens, (tokens, width of the layers)."""
        x = self.embed(tokens)
        return x if self.project is None else self.project(x)

    def embed(self, tokens: Tokens) -> Tensor:
        """Return the embeddings before the projection, (tokens, width)."""
        x = look_up(self.words.weight, tokens.ids)  # (tokens, width)
        if self.segments is not None:
            x = x + self._segments(tokens, self.segments.weight)
        if self.positions is not None:
            x = x + look_up(
                self.positions.weight, tokens.position_ids + self.offset if self.offset else tokens.position_ids
            )
        return self.dropout(x if self.norm is None else self.norm(x))

    @staticmethod
    def _segments(tokens: Tokens, table: Tensor) -> Tensor:
        """Return the segment embeddings, (tokens or 1, width)."""
        if len(table) == 1:
            return table
        if tokens.segments is None:
            raise ValueError(
                f"a body with {len(table)} segments needs samples with segments, but the layout gives none"
            )
        return look_up(table, tokens.segments)


def look_up(table: Tensor, ids: Tensor) -> Tensor:
    """Return rows of a table; the gradient of a row is summed over its occurrences in float32.

    On a CPU torch sums it in the table's own dtype: in bf16 1 + 1 + ... saturates at 256, and a row such as [SEP]'s or
    a segment's occurs more often than that in a batch. In bf16 the table's gradient is sparse, with only the rows used.

    Shape:
        table: (rows, width); ids: (tokens,) int64; returns (tokens, width).
    """
    exact = torch.is_grad_enabled() and not torch.compiler.is_compiling()
    if not table.is_cpu or table.dtype != torch.bfloat16 or not exact:
        return embedding(ids, table)
    rows: Tensor = _LookUp.apply(table, ids)  # type: ignore[no-untyped-call]
    return rows


class DistanceEmbeddings(Embeddings):
    """Embeddings beside which the body has parameters for distances of tokens, which all its layers read.

    Args:
        parts, more: arguments of `Embeddings`.
        distances: the module with these parameters.
    """

    def __init__(self, *parts: Any, distances: nn.Module, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.distances = distances


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape = table.shape
        return table.index_select(0, ids)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (ids,), (grad,) = ctx.saved_tensors, grads
        rows, inverse = ids.unique(return_inverse=True)
        sums = grad.new_zeros(len(rows), grad.shape[1], dtype=torch.float32).index_add_(0, inverse, grad.float())
        values = sums.to(grad.dtype)
        return torch.sparse_coo_tensor(rows[None], values, ctx.shape, is_coalesced=True, check_invariants=False), None
