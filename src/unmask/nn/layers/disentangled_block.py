"""A layer of DeBERTa: disentangled attention and feed-forward, post-norm, and in the first one perhaps a convolution.

He et al. 2021 (DeBERTa). The convolution is that of the 900M and 1.5B models of DeBERTa-v2: it reads the input of the
first layer, and its output is added to that of the layer (ConvLayer in modeling_deberta_v2.py of transformers 5).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from unmask.data.batches.batch import Tokens
from unmask.nn.layers.attention import select
from unmask.nn.layers.block import Activation, Block
from unmask.nn.layers.disentangled_attention import DisentangledAttention
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.linear import Linear
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.pooler import ACTIVATIONS, PoolerActivation


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
        found = self.activation(self.dropout(self.out(near)))
        return self.norm(onto + pad(found, (0, 0, 0, onto.shape[0] - found.shape[0])))

    def _neighbors(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Return each token beside those around it, (tokens, size * width); 0 beyond the ends of its sequence."""
        numbers = tokens.position_ids  # (tokens,)
        count = numbers.shape[0]
        x = x[:count]
        group = tokens.groups[0]
        if group.real is not None and group.index is None:  # padding in the stream
            x = x * group.real.reshape(-1, 1)
        found = []
        for offset in range(-self.reach, self.reach + 1):
            at = (torch.arange(count, device=x.device) + offset).clamp(min=0).clamp(max=count - 1)
            inside = numbers[at] == numbers + offset  # in another sequence, positions start again
            found.append(x.index_select(0, at) * inside[:, None])
        return torch.cat(found, 1)


class DisentangledBlock(Block):
    """Attention, feed-forward and perhaps a convolution.

    Args:
        attention: the attention sublayer.
        inner: width between the two feed-forward layers.
        dropout: dropout rate on the sublayers' outputs.
        activation: activation between the feed-forward layers.
        epsilon: epsilon of the LayerNorms.
        convolution: the convolution; None: there is none.
    """

    def __init__(
        self,
        attention: DisentangledAttention,
        inner: int,
        dropout: float,
        activation: Activation,
        epsilon: float,
        convolution: Convolution | None = None,
    ) -> None:
        width = attention.out.in_features
        super().__init__(width, attention.heads, inner, dropout, activation, epsilon, attention=attention)
        self.convolution = convolution

    def forward(
        self, x: Tensor, tokens: Tokens, scores: list[Tensor] | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """See `Block`."""
        y = super().forward(x, tokens, scores, rows)
        return y if self.convolution is None else self.convolution(x, y, tokens, rows)

    def forward_flops(self, tokens: Tokens) -> int:
        """See `Block`; counts the products with distances."""
        assert isinstance(self.attention, DisentangledAttention)
        added = 0 if self.convolution is None else 2 * len(tokens.ids) * self.convolution.out.weight.numel()
        return super().forward_flops(tokens) + self.attention.forward_flops(tokens) + added

    @property
    def row_flops(self) -> int:
        """See `Block`."""
        return super().row_flops + (0 if self.convolution is None else 2 * self.convolution.out.weight.numel())
