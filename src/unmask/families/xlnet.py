"""XLNet (Yang et al. 2019): two streams, relative positions and memory; its directories (modeling_xlnet.py).

Post-norm layers without biases in the attention, LayerNorm epsilon 1e-12, exact GELU (the paper's; the reference code
approximates it by tanh, transformers computes it exactly), all weights and biases of queries from a normal distribution
of standard deviation 0.02. Positions are relative, so `positions` is only the maximum sequence length. Special tokens
follow the text, and the vector of a text is read at the last one, [CLS], through a dense layer with tanh.
"""

from __future__ import annotations

from torch import nn

from unmask.encoders.encoder import (
    BOTH_SIDES,
    CARRY,
    POOLER,
    SEPARATE_LAYERS,
    TOKEN_EMBEDDINGS,
    TWO_STREAMS,
    Initializer,
)
from unmask.encoders.two_streams import TwoStreams
from unmask.families.body import MAX_SIZE, TransformerSettings, check_offsets, check_size, check_small
from unmask.families.format import TASK_HEADS, Family, Format, architectures
from unmask.layers.embeddings import Embeddings
from unmask.layers.pooler import Pooler
from unmask.layers.relative_block import RelativeBlock


class XlnetSettings(TransformerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="xlnet"):
    """The recipe's [encoder] for `kind = "xlnet"`; see `TransformerSettings`.

    Attributes:
        feed_forward: inner width of the feed-forward layers.
        epsilon: epsilon of the LayerNorms.
        memory: number of tokens of the previous windows that a window attends to; 0: none.
        initial_offsets: offsets of the tokens that the first heads of each layer attend to before training, such as
            (-1, 1) for the previous and the next token, which a small model otherwise takes long to discover.
    """

    feed_forward: int
    positions: int = 65_536
    epsilon: float = 1e-12
    memory: int = 0
    initial_offsets: tuple[int, ...] = ()

    summary = "last"
    capabilities = frozenset({BOTH_SIDES, TOKEN_EMBEDDINGS, POOLER, SEPARATE_LAYERS, TWO_STREAMS, CARRY})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_offsets(self.initial_offsets, self.heads)
        check_size("feed_forward", self.feed_forward)
        check_small("epsilon", self.epsilon)
        if not 0 <= self.memory <= MAX_SIZE:
            raise ValueError(f"memory must be between 0 and {MAX_SIZE:,}")
        if self.width % 2:
            raise ValueError(f"width {self.width} must be even: distances are pairs of sine and cosine")

    @property
    def gives(self) -> frozenset[str]:
        """See `BodySettings`; without memory no state is carried."""
        return self.capabilities if self.memory else self.capabilities - {CARRY}

    @property
    def num_segments(self) -> int:
        """See `BodySettings`: the first text, the second one, and [CLS]; only compared."""
        return 3

    @property
    def inner(self) -> int:
        """See `TransformerSettings`."""
        return self.feed_forward

    @property
    def layer_norm(self) -> float:
        """See `TransformerSettings`."""
        return self.epsilon

    @property
    def init(self) -> Initializer:
        """See `TransformerSettings`."""
        return Initializer(self.init_std, truncated=False)

    def build(self, vocabulary: int) -> TwoStreams:
        """See `BodySettings`."""
        embeddings = Embeddings(vocabulary, 0, 0, self.width, None, dropout=self.dropout, epsilon=None)
        parts = self.width, self.heads, self.inner, self.dropout, self.activation, self.epsilon
        blocks = [RelativeBlock(*parts) for _ in range(self.layers)]
        body = TwoStreams(self, vocabulary, embeddings, blocks, Pooler(self.width, "tanh"))
        self.init(body)
        nn.init.normal_(body.query, std=self.init_std)
        for block in blocks:
            attention = block.attention
            for part in (
                attention.content_bias,
                attention.distance_bias,
                attention.segment_bias,
                attention.segments,
            ):
                nn.init.normal_(part, std=self.init_std)
            attention.attend_at(self.initial_offsets)
        return body


XLNET = Family(
    XlnetSettings,
    Format(
        model_type="xlnet",
        prefix="transformer.",
        config={
            "layers": "n_layer",
            "width": "d_model",
            "heads": "n_head",
            "feed_forward": "d_inner",
            "dropout": "dropout",
            "activation": "ff_activation",
            "epsilon": "layer_norm_eps",
            "init_std": "initializer_range",
        },
        embeddings={"embeddings.words.weight": "word_embedding.weight"},
        layer="layer.{}",
        qkv=(),
        block={},
        heads=TASK_HEADS,
        decoder="lm_loss.weight",
        architectures=architectures("XLNet"),
    ),
)
