"""A layer of ModernBERT: pre-norm, with a gated feed-forward sublayer and, unless it is global, local attention.

Warner et al. 2024, section 2.1: x + Sublayer(LayerNorm(x)) (Xiong et al. 2020), GELU gated by a second linear function
(Shazeer 2020), and no biases. The first layer does not normalize its input, as the embeddings are normalized. Here the
last layer contains the LayerNorm of the output, so that its output is what heads read; in transformers that LayerNorm
belongs to the body. Dropout is where it is there: on the attention's output and inside the feed-forward sublayer.
"""

from __future__ import annotations

from torch import Tensor, nn

from unmask.data.batches.batch import Tokens
from unmask.nn.layers.attention import SelfAttention, select
from unmask.nn.layers.block import ACTIVATIONS, Activation, layer_flops, row_flops
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.linear import Linear
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.rotary import Rotation


class GatedFeedForward(nn.Module):
    """down(activation(a) * b), where a and b are the halves of up(x): (tokens, width) to (tokens, width)."""

    def __init__(self, width: int, inner: int, dropout: float, activation: Activation) -> None:
        super().__init__()
        self.up = Linear(width, 2 * inner, bias=False)
        self.up.stacked = 2
        self.activation = ACTIVATIONS[activation]()
        self.dropout = Dropout(dropout)
        self.down = Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the sublayer's output for each token."""
        inner, gate = self.up(x).chunk(2, 1)  # each (tokens, inner)
        return self.down(self.dropout(self.activation(inner) * gate))


class PreNormBlock(nn.Module):
    """Attention and feed-forward sublayers, each with a LayerNorm before it and a residual connection around it.

    Args:
        width: hidden size of the tokens.
        heads: number of attention heads.
        inner: width between the two feed-forward layers.
        dropout: dropout rate on the attention probabilities, on the attention's output and between the feed-forward
            layers.
        activation: activation of the feed-forward sublayer.
        epsilon: epsilon of the LayerNorms.
        rotation: rotation of the attention's queries and keys by their positions.
        window: maximum distance of the tokens that a token attends to, on each side; None: any distance.
        first: whether it is the first layer, whose input is normalized.
        last: whether it is the last layer, which normalizes its output.
        attention_bias: whether the linear layers of the attention have biases.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        dropout: float,
        activation: Activation,
        epsilon: float,
        *,
        rotation: Rotation,
        window: int | None = None,
        first: bool = False,
        last: bool = False,
        attention_bias: bool = False,
    ) -> None:
        super().__init__()
        self.attention_norm = None if first else LayerNorm(width, epsilon, bias=False)
        self.attention = SelfAttention(width, heads, dropout, rotation=rotation, window=window, biased=attention_bias)
        self.feed_forward_norm = LayerNorm(width, epsilon, bias=False)
        self.feed_forward = GatedFeedForward(width, inner, dropout, activation)
        self.final_norm = LayerNorm(width, epsilon, bias=False) if last else None
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, tokens: Tokens, scores: list[Tensor] | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the next layer's tokens; see `Block.forward`."""
        normed = x if self.attention_norm is None else self.attention_norm(x)
        x = self.dropout(self.attention(normed, tokens, scores, rows), onto=select(x, rows))
        x = x + self.feed_forward(self.feed_forward_norm(x))
        return x if self.final_norm is None else self.final_norm(x)

    def forward_flops(self, tokens: Tokens) -> int:
        """Return the operations of the layer's matrix products; see `Encoder.forward_flops`."""
        return layer_flops(tokens, self.attention, self.feed_forward)

    @property
    def row_flops(self) -> int:
        """See `Block`."""
        return row_flops(self.attention.out, self.feed_forward)
