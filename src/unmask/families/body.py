"""What the settings of every family have in common: the recipe's [encoder].

A family is one file of this package: the settings that exist in it, how its body is composed of layers, its frame of
special tokens, what heads on it are like, and how its directories name all that (`Format`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from unmask.encoders.encoder import (
    BOTH_SIDES,
    NARROW_BLOCKS,
    POOLER,
    SCORES,
    SEPARATE_LAYERS,
    TOKEN_EMBEDDINGS,
    Encoder,
    HeadSpec,
    Initializer,
)
from unmask.encoders.transformer import Transformer
from unmask.layers.block import Activation, Block
from unmask.layers.embeddings import Embeddings
from unmask.layers.pooler import Pooler
from unmask.layers.rotary import Rotation
from unmask.tokenizers.tokenizer import Summary

MOST_LAYERS = 1000
"""Of layers that are the same one weight is stored, so that nothing else tells a damaged number."""
LARGEST = 1 << 24
"""Of any size of a body."""


class BodySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What the recipe's [encoder] holds for every family.

    Attributes:
        layers, width: how many layers, and how wide their output is.
        positions: the longest sequence in tokens.
        dropout: everywhere.
        head_dropout: before the last layer of a task's head; None: as everywhere.
        summary: where a text's vector is read; see batches/frame.py.
        capabilities: of the family's bodies; see encoders/encoder.py.
        asks: what layouts must give, such as continuing streams for a body that carries state.
    """

    layers: int
    width: int
    positions: int = 512
    dropout: float = 0.1
    head_dropout: float | None = None

    summary: ClassVar[Summary] = "first"
    capabilities: ClassVar[frozenset[str]] = frozenset()
    asks: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        if self.layers > MOST_LAYERS:
            raise ValueError(f"layers must be at most {MOST_LAYERS}")
        for name in ("layers", "width", "positions"):
            check_size(name, getattr(self, name))
        if not 0 <= self.dropout < 1 or not 0 <= self.before_last < 1:
            raise ValueError("dropout and head_dropout must lie in [0, 1)")

    @property
    def before_last(self) -> float:
        """Dropout before the last layer of a task's head."""
        return self.dropout if self.head_dropout is None else self.head_dropout

    @property
    def shape(self) -> str:
        """How large it is, in words."""
        return f"{self.layers} layers, width {self.width}"

    @property
    def pretraining(self) -> Summary:
        """How texts are framed in pretraining: as in tasks, but for the last token of GPT's, which is theirs alone."""
        return "first" if self.summary == "extract" else self.summary

    @property
    def num_segments(self) -> int:
        """How many segments are told apart; 0 or 1: none."""
        return 0

    def build(self, vocabulary: int) -> Encoder:
        """Return a body with initial weights, drawn from torch's global generator.

        Args:
            vocabulary: how many token ids it knows.
        """
        raise NotImplementedError

    @property
    def gives(self) -> frozenset[str]:
        """What this body is capable of."""
        return self.capabilities

    @property
    def head(self) -> HeadSpec:
        """What heads on the body are like."""
        raise NotImplementedError

    def mismatch(self, pad: int) -> str:
        """Return which setting (KEY=VALUE) a vocabulary with this id of padding would need; "" where it fits."""
        return ""


class TransformerSettings(BodySettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the Transformers of BERT's time have in common: post-norm layers (Devlin et al. 2019, section 3).

    Attributes:
        layers, width, heads: L, H and A of the paper.
        activation: "gelu" (exact), "gelu_tanh" or "relu".
        init_std: of the initial weights.
    """

    heads: int
    activation: Activation = "gelu"
    init_std: float = 0.02

    capabilities = frozenset({BOTH_SIDES, TOKEN_EMBEDDINGS, POOLER, NARROW_BLOCKS, SCORES, SEPARATE_LAYERS})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("heads", self.heads)
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        check_small("init_std", self.init_std)

    @property
    def shape(self) -> str:
        """See `BodySettings`."""
        return f"{super().shape}, {self.heads} heads"

    @property
    def inner(self) -> int:
        """Width between the two feed-forward layers."""
        raise NotImplementedError

    @property
    def layer_norm(self) -> float:
        """Epsilon of the LayerNorms."""
        raise NotImplementedError

    @property
    def init(self) -> Initializer:
        """How weights are drawn."""
        return Initializer(self.init_std)

    @property
    def head(self) -> HeadSpec:
        """What heads on the body are like: by default those of BERT."""
        return HeadSpec(
            width=self.width,
            init=self.init,
            activation=self.activation,
            lm_activation=self.activation,
            epsilon=self.layer_norm,
            dropout=self.before_last,
            token_dropout=self.before_last,
            rnn_dropout=self.dropout,
            summary=self.summary,
        )

    @property
    def causal(self) -> bool:
        """Whether tokens attend to themselves and those before them alone."""
        return False

    @property
    def rotation(self) -> Rotation | None:
        """How queries and keys are rotated by their positions; None: they are not."""
        return None

    def block(
        self, *, width: int | None = None, heads: int | None = None, inner: int | None = None, **shared: Any
    ) -> Block:
        """Return one of the layers, at another width where one is given.

        Args:
            width, heads, inner: where they are not the settings' own.
            shared: `attention_of` or `feed_forward_of`; see `Block`.
        """
        return Block(
            width or self.width,
            heads or self.heads,
            inner or self.inner,
            self.dropout,
            self.activation,
            self.layer_norm,
            causal=self.causal,
            rotation=self.rotation,
            **shared,
        )

    def blocks(self) -> list[Block]:
        """Return all layers."""
        return [self.block() for _ in range(self.layers)]

    def owner(self, layer: int, part: str) -> int:
        """Return which layer has the "attention" or "feed_forward" sublayer that a layer uses: its own, by default."""
        return layer

    def compose(
        self, vocabulary: int, embeddings: Embeddings, blocks: Sequence[Block], pooler: Pooler | None
    ) -> Transformer:
        """Return the body of these parts, its weights drawn."""
        body = Transformer(self, vocabulary, embeddings, blocks, pooler)
        self.init(body)
        return body


def check_size(name: str, value: int) -> None:
    """Refuse a size below 1, or of which a matrix would have more numbers than can be counted.

    Raises:
        ValueError: it is.
    """
    if value < 1:
        raise ValueError(f"{name} must be at least 1")
    if value > LARGEST:
        raise ValueError(f"{name} must be at most {LARGEST:,}, not {value}")


def check_small(name: str, value: float) -> None:
    """Refuse what must lie between 0 and 1 and does not.

    Raises:
        ValueError: it does not, or is no number.
    """
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1")
