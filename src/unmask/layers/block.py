"""One layer of the Transformer encoder, post-norm as in the paper and in BERT.

Vaswani et al. 2017, section 3.1: LayerNorm(x + Sublayer(x)), with dropout on the sublayer's output (section 5.4).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from unmask.batches.batch import Tokens
from unmask.layers.attention import SelfAttention
from unmask.layers.dropout import Dropout
from unmask.layers.linear import Linear
from unmask.layers.norm import LayerNorm

Activation = Literal["gelu", "gelu_tanh", "relu"]
ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "relu": nn.ReLU,
}


class FeedForward(nn.Sequential):
    """Two linear layers with an activation between: (tokens, width) to (tokens, width)."""

    def __init__(self, width: int, inner: int, activation: Activation) -> None:
        super().__init__()
        self.up = Linear(width, inner)
        self.activation = ACTIVATIONS[activation]()
        self.down = Linear(inner, width)


class Block(nn.Module):
    """Self-attention and feed-forward, each added to its input and normalised.

    Args:
        width: of the tokens.
        heads: of the attention.
        inner: width between the two feed-forward layers.
        dropout: on attention probabilities and on both sublayers' outputs.
        activation: between the feed-forward layers.
        epsilon: of the LayerNorms.
    """

    def __init__(
        self, width: int, heads: int, inner: int, dropout: float, activation: Activation, epsilon: float
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads, dropout)
        self.attention_norm = LayerNorm(width, epsilon)
        self.feed_forward = FeedForward(width, inner, activation)
        self.feed_forward_norm = LayerNorm(width, epsilon)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, tokens: Tokens) -> Tensor:
        """Return the next layer's tokens.

        Shape:
            x: (tokens, width); returns (tokens, width).
        """
        x = self.attention_norm(self.dropout(self.attention(x, tokens), onto=x))
        return self.feed_forward_norm(self.dropout(self.feed_forward(x), onto=x))
