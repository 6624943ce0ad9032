"""The input representation: token, position and segment embeddings, summed (Devlin et al. 2019, figure 2).

Attention by learned positions may start local. The first columns of the table of positions are then sinusoids (Vaswani
et al. 2017, section 3.5, of shorter wavelengths), and the query and key weights of a head read only these, so that its
scores are highest at an offset. All of these weights are trained like any others. Rotary positions need biases only:
see `Rotation.biases`.

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
from unmask.nn.layers.rotary import CONTRAST

if TYPE_CHECKING:
    from unmask.data.batches.batch import Tokens

PAIRS = 8
"""Number of pairs of sine and cosine."""
FASTEST, SLOWEST = 1.5, 0.02
"""Angles per position of the first and of the last pair; the others are a geometric series in between."""
AMPLITUDE = 5.0
"""Amplitude of the sinusoids, in standard deviations of the other initial weights."""


def num_pairs(width: int) -> int:
    """Return how many pairs fit into a width."""
    return min(PAIRS, width // 2)


def angles(pairs: int) -> Tensor:
    """Return the angles per position of the first pairs, (pairs,)."""
    return FASTEST * (SLOWEST / FASTEST) ** (torch.arange(pairs) / (PAIRS - 1))


def sinusoids(positions: int, width: int) -> Tensor:
    """Return cosine and sine of each pair at each position, (positions, 2 * pairs)."""
    phases = torch.arange(positions)[:, None] * angles(num_pairs(width))  # (positions, pairs)
    return torch.stack([phases.cos(), phases.sin()], 2).flatten(1)


def readers(offset: int, head_width: int, width: int) -> tuple[Tensor, Tensor]:
    """Return query and key weights whose scores are highest at an offset of their positions.

    The gain assumes that the sum of word, position and segment embeddings was normalized.

    Args:
        offset: position of the key minus that of the query.
        head_width: width of the head.
        width: width of its input, whose first columns are the sinusoids.

    Returns:
        Two matrices (2 * pairs, 2 * pairs), for the first rows and columns of the head's weights.
    """
    pairs = min(num_pairs(head_width), num_pairs(width))
    angle = angles(pairs)
    squared = AMPLITUDE**2 * width / (PAIRS * AMPLITUDE**2 + 3 * width)  # of the norm of a normalized pair
    gain = (CONTRAST * head_width**0.5 / squared / (1 - angle.cos()).sum()).sqrt()
    cos, sin = (offset * angle).cos(), (offset * angle).sin()
    turned = torch.zeros(2 * pairs, 2 * pairs)
    turned[::2, ::2], turned[::2, 1::2] = cos.diag(), -sin.diag()
    turned[1::2, ::2], turned[1::2, 1::2] = sin.diag(), cos.diag()
    return gain * turned, gain * torch.eye(2 * pairs)


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
