"""Layers of Transformer encoders: post-norm with a plain feed-forward sublayer, and pre-norm with a gated one.

`Block` is the layer of the paper and of BERT. Vaswani et al. 2017, section 3.1: LayerNorm(x + Sublayer(x)), with
dropout on the sublayer's output (section 5.4). Layers may share a sublayer, including its LayerNorm (Lan et al. 2020
(ALBERT), section 3.1).

`PreNormBlock` is the layer of ModernBERT. Warner et al. 2024, section 2.1: x + Sublayer(LayerNorm(x)) (Xiong et al.
2020), GELU gated by a second linear function (Shazeer 2020), and no biases; unless the layer is global, its attention
is local. The first layer does not normalize its input, as the embeddings are normalized. Here the last layer contains
the LayerNorm of the output, so that its output is what heads read; in transformers that LayerNorm belongs to the body.
Dropout is where it is there: on the attention's output and inside the feed-forward sublayer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Literal, NamedTuple

from torch import Tensor, nn

from unmask.nn.layers.attention import SelfAttention, select
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.linear import Linear
from unmask.nn.layers.norm import LayerNorm, RMSNorm

if TYPE_CHECKING:
    from unmask.data.batches.batch import Tokens

Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]
ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "relu": nn.ReLU,
    "silu": nn.SiLU,
}


class Sizes(NamedTuple):
    """The sizes of a layer.

    Attributes:
        width: hidden size of the tokens.
        heads: number of attention heads.
        inner: width between the two feed-forward layers.
    """

    width: int
    heads: int
    inner: int


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
        attention, attention_norm: the attention and its LayerNorm.
        feed_forward, feed_forward_norm: the feed-forward sublayer and its LayerNorm.
        dropout: dropout rate on both sublayers' outputs.
        shared: "attention" and "feed_forward", if these are those of another layer, in which they are registered.
    """

    attention: SelfAttention
    attention_norm: LayerNorm
    feed_forward: FeedForward | GatedFeedForward
    feed_forward_norm: LayerNorm

    def __init__(
        self,
        attention: SelfAttention,
        attention_norm: LayerNorm,
        feed_forward: FeedForward | GatedFeedForward,
        feed_forward_norm: LayerNorm,
        dropout: float,
        *,
        shared: Collection[str] = (),
    ) -> None:
        super().__init__()
        sublayers = {"attention": (attention, attention_norm), "feed_forward": (feed_forward, feed_forward_norm)}
        for name, (sublayer, norm) in sublayers.items():
            # parameters of shared sublayers are registered in one module only
            assign = object.__setattr__ if name in shared else setattr
            assign(self, name, sublayer)
            assign(self, f"{name}_norm", norm)
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
        attended = self.attention(x, tokens, scores, rows)
        x = self.attention_norm(self.dropout(attended, onto=select(x, rows)))
        return self.feed_forward_norm(self.dropout(self.feed_forward(x), onto=x))


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
        attention_norm, attention: the attention and the norm of its input; None: the input is normalized already.
        feed_forward_norm, feed_forward: the feed-forward sublayer and the norm of its input.
        final_norm: norm of the output, in the last layer; None: there is none.
        dropout: dropout rate on the attention's output.
    """

    def __init__(
        self,
        attention_norm: LayerNorm | RMSNorm | None,
        attention: SelfAttention,
        feed_forward_norm: LayerNorm | RMSNorm,
        feed_forward: FeedForward | GatedFeedForward,
        final_norm: LayerNorm | RMSNorm | None,
        dropout: float,
    ) -> None:
        super().__init__()
        self.attention_norm = attention_norm
        self.attention = attention
        self.feed_forward_norm = feed_forward_norm
        self.feed_forward = feed_forward
        self.final_norm = final_norm
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, tokens: Tokens, scores: list[Tensor] | None = None, rows: Tensor | None = None
    ) -> Tensor:
        """Return the next layer's tokens; see `Block.forward`."""
        normed = x if self.attention_norm is None else self.attention_norm(x)
        x = self.dropout(self.attention(normed, tokens, scores, rows), onto=select(x, rows))
        x = x + self.feed_forward(self.feed_forward_norm(x))
        return x if self.final_norm is None else self.final_norm(x)


def rms_block(
    attention: SelfAttention, feed_forward: GatedFeedForward, epsilon: float, *, last: bool, dropout: float = 0.0
) -> PreNormBlock:
    """Return a pre-norm layer with RMSNorm before each sublayer and, if it is the last one, on its output.

    Args:
        attention, feed_forward: the sublayers.
        epsilon: epsilon of the norms.
        last: whether it is the last layer.
        dropout: dropout rate on the attention's output.
    """
    width = attention.out.in_features
    norms = [RMSNorm(width, epsilon) for _ in range(2)]
    final = RMSNorm(width, epsilon) if last else None
    return PreNormBlock(norms[0], attention, norms[1], feed_forward, final, dropout)
