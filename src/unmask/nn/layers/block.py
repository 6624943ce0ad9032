"""A layer of the Transformer encoder, post-norm as in the paper and in BERT.

Vaswani et al. 2017, section 3.1: LayerNorm(x + Sublayer(x)), with dropout on the sublayer's output (section 5.4).
Layers may share a sublayer, including its LayerNorm (Lan et al. 2020 (ALBERT), section 3.1).

A layer of ModernBERT: pre-norm, with a gated feed-forward sublayer and, unless it is global, local attention.

Warner et al. 2024, section 2.1: x + Sublayer(LayerNorm(x)) (Xiong et al. 2020), GELU gated by a second linear function
(Shazeer 2020), and no biases. The first layer does not normalize its input, as the embeddings are normalized. Here the
last layer contains the LayerNorm of the output, so that its output is what heads read; in transformers that LayerNorm
belongs to the body. Dropout is where it is there: on the attention's output and inside the feed-forward sublayer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

from unmask.data.batches.batch import Tokens
from unmask.nn.layers.attention import SelfAttention, select
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.linear import Linear
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.rotary import Rotation

Activation = Literal["gelu", "gelu_tanh", "relu"]
ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "relu": nn.ReLU,
}


class FeedForward(nn.Sequential):
    """Two linear layers with an activation in between: (tokens, width) to (tokens, width)."""

    def __init__(self, width: int, inner: int, activation: Activation) -> None:
        super().__init__()
        self.up = Linear(width, inner)
        self.activation = ACTIVATIONS[activation]()
        self.down = Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return down(activation(up(x))) for each token."""
        return self.down(self.up(x, self.activation))


class Block(nn.Module):
    """Self-attention and feed-forward sublayers, each with a residual connection and LayerNorm.

    Args:
        width: hidden size of the tokens.
        heads: number of attention heads.
        inner: width between the two feed-forward layers.
        dropout: dropout rate on the attention probabilities and on both sublayers' outputs.
        activation: activation between the feed-forward layers.
        epsilon: epsilon of the LayerNorms.
        causal: whether tokens do not attend to later tokens.
        rotation: rotation of the attention's queries and keys by their positions; None: no rotation.
        attention: the self-attention, if it is of another kind than these arguments describe.
        attention_of, feed_forward_of: the layer whose sublayer is shared; None: the layer has its own.
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
        causal: bool = False,
        rotation: Rotation | None = None,
        attention: SelfAttention | None = None,
        attention_of: Block | None = None,
        feed_forward_of: Block | None = None,
    ) -> None:
        super().__init__()
        # in a tuple, so that the shared parameters are registered in one module only
        self._shared = (attention_of, feed_forward_of)
        if attention_of is None:
            self.attention = attention or SelfAttention(width, heads, dropout, causal=causal, rotation=rotation)
            self.attention_norm = LayerNorm(width, epsilon)
        if feed_forward_of is None:
            self.feed_forward = FeedForward(width, inner, activation)
            self.feed_forward_norm = LayerNorm(width, epsilon)
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, tokens: Tokens, scores: list[Tensor] | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the next layer's tokens.

        Args:
            x: (tokens, width).
            tokens: offsets and groups of the sequences.
            scores: if given, the attention scores of each group are appended; see `SelfAttention.forward`.
            rows: if given, the tokens to return, (rows,) int64.

        Returns:
            (tokens or rows, width).
        """
        first, second = (other or self for other in self._shared)
        attended = first.attention(x, tokens, scores, rows)
        x = first.attention_norm(self.dropout(attended, onto=select(x, rows)))
        return second.feed_forward_norm(self.dropout(second.feed_forward(x), onto=x))


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
