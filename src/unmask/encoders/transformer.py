"""BERT's body: a bidirectional Transformer encoder (Devlin et al. 2019, section 3).

In: a ragged batch. Out: a vector for each token, and on request a pooled vector for a sequence.

Post-norm layers, learned positions, LayerNorm epsilon 1e-12, weights from a normal distribution of deviation 0.02 cut
off at two deviations (modeling.py of google-research/bert). GELU is the exact one, as in the paper and in the first
release (the reference code turned to the tanh approximation later: `activation = "gelu_tanh"`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from unmask.batches.batch import Tokens
from unmask.encoders.encoder import Encoded
from unmask.layers.block import Activation, Block
from unmask.layers.embeddings import Embeddings


class TransformerSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="transformer"
):
    """The recipe's [encoder] for `kind = "transformer"`.

    Attributes:
        layers, width, heads: L, H and A of the paper.
        feed_forward: inner width of the feed-forward layers (4 H in the paper).
        positions: the longest sequence in tokens.
        segments: how many segments there are.
        dropout: everywhere.
        activation: "gelu" (exact), "gelu_tanh" or "relu".
        epsilon: of the LayerNorms.
        deviation: of the initial weights.
    """

    layers: int
    width: int
    heads: int
    feed_forward: int
    positions: int = 512
    segments: int = 2
    dropout: float = 0.1
    activation: Activation = "gelu"
    epsilon: float = 1e-12
    deviation: float = 0.02

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "feed_forward", "positions", "segments"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        if not 0 <= self.dropout < 1:
            raise ValueError("dropout must lie in [0, 1)")
        for name in ("epsilon", "deviation"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must lie between 0 and 1")

    def build(self, vocabulary: int) -> Transformer:
        """Return an encoder with initial weights, drawn from torch's global generator."""
        return Transformer(self, vocabulary)


class Transformer(nn.Module):
    """See the module; satisfies `Encoder`.

    Args:
        settings: its shape.
        vocabulary: how many token ids it knows.
    """

    def __init__(self, settings: TransformerSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.width = settings.width
        self.vocabulary = vocabulary
        self.longest = settings.positions
        self.recompute = False
        self.embeddings = Embeddings(
            vocabulary, settings.positions, settings.segments, settings.width, settings.dropout, settings.epsilon
        )
        self.blocks = nn.ModuleList(
            Block(
                settings.width,
                settings.heads,
                settings.feed_forward,
                settings.dropout,
                settings.activation,
                settings.epsilon,
            )
            for _ in range(settings.layers)
        )
        self.pooler = nn.Linear(settings.width, settings.width)
        initialise(self, settings.deviation)

    @property
    def words(self) -> nn.Embedding:
        """See `Encoder`."""
        return self.embeddings.words

    @property
    def levels(self) -> Sequence[nn.Module]:
        """See `Encoder`."""
        return [self.embeddings, *self.blocks]

    def forward(self, tokens: Tokens, keep: frozenset[int] = frozenset()) -> Encoded:
        """Encode a batch; see `Encoder`."""
        x = self.embeddings(tokens)  # (tokens, width)
        layers = {0: x} if 0 in keep else {}
        for number, block in enumerate(self.blocks, start=1):
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, tokens, use_reentrant=False)
            else:
                x = block(x, tokens)  # (tokens, width)
            if number in keep:
                layers[number] = x
        return Encoded(last=x, layers=layers)

    def pool(self, rows: Tensor) -> Tensor:
        """See `Encoder`."""
        return torch.tanh(self.pooler(rows))

    def forward_flops(self, tokens: Tokens) -> int:
        """See `Encoder`: the layers' matrices see each token, attention each pair of tokens of a sequence twice."""
        width = self.width
        matrices = 4 * width * width + 2 * width * self.settings.feed_forward  # query, key, value, out; up, down
        pairs = int(tokens.offsets.diff().long().square().sum())
        return self.settings.layers * 2 * (len(tokens.ids) * matrices + 2 * pairs * width)


def initialise(module: nn.Module, deviation: float) -> None:
    """Draw matrices as BERT does: normal, cut off at two deviations; biases 0, LayerNorms 1 and 0."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
