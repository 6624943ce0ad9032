"""Base classes of the families' settings, the recipe's [encoder].

Each family is one file of this package: its settings, how its body is composed of layers, where its special tokens go,
properties of the heads on it, and how its checkpoint directories name all that (`Format`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from unmask.data.batches.sources import STREAMS
from unmask.nn.encoders.encoder import (
    BOTH_SIDES,
    CARRY,
    CHARACTERS,
    NARROW_BLOCKS,
    POOLER,
    SCORES,
    SEPARATE_LAYERS,
    TOKEN_EMBEDDINGS,
    UNSEEN_TOKENS,
    Encoder,
    HeadSpec,
    Initializer,
)
from unmask.nn.encoders.transformer import Layer, Transformer
from unmask.nn.layers.block import Activation, Block, FeedForward, SelfAttention, Sizes
from unmask.nn.layers.embeddings import Embeddings
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.plain_attention import AttentionSpec
from unmask.nn.layers.pooler import NormedPooler, Pooler
from unmask.nn.layers.rotary import Rotation
from unmask.support.choices import SummaryKind
from unmask.support.errors import counted

MAX_LAYERS = 1000
"""Limit on the number of layers. Shared layers are stored once, so that only this reveals a corrupt number."""
MAX_SIZE = 1 << 24
"""Limit on every dimension of a body."""


class BodySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """The settings that every family has in the recipe's [encoder].

    Attributes:
        layers, width: the number of layers, and the width of their output.
        positions: the maximum sequence length in tokens.
        dropout: dropout rate of the whole body.
        head_dropout: dropout rate before the last layer of a task head; None: the same as `dropout`.
        summary: the position at which the vector of a text is read; see data/batches/frame.py.
        capabilities: capabilities of the family's bodies; see nn/encoders/encoder.py.
        library: name, on the Hugging Face Hub, of the library that reads their directories.
    """

    layers: int
    width: int
    positions: int = 512
    dropout: float = 0.1
    head_dropout: float | None = None

    summary: ClassVar[SummaryKind] = "first"
    capabilities: ClassVar[frozenset[str]] = frozenset()
    library: ClassVar[str] = "transformers"

    def __post_init__(self) -> None:
        if self.layers > MAX_LAYERS:
            raise ValueError(f"layers must be at most {MAX_LAYERS}")
        for name in ("layers", "width", "positions"):
            check_size(name, getattr(self, name))
        if not 0 <= self.dropout < 1 or not 0 <= self.before_last < 1:
            raise ValueError("dropout and head_dropout must lie in [0, 1)")

    @property
    def before_last(self) -> float:
        """Dropout rate before the last layer of a task head."""
        return self.dropout if self.head_dropout is None else self.head_dropout

    @property
    def shape(self) -> str:
        """Description of the size, such as "12 layers, width 768"."""
        return f"{counted(self.layers, 'layer')}, width {self.width}"

    @property
    def pretraining(self) -> SummaryKind:
        """How texts are framed in pretraining: as in tasks, except for GPT's last token, which only tasks have."""
        return "first" if self.summary == "extract" else self.summary

    @property
    def period(self) -> int:
        """Number of layers after which their kinds repeat; 1 if all layers are alike."""
        return 1

    @property
    def segments(self) -> int:
        """Number of segment ids; with 0 or 1 segments are not distinguished."""
        return 0

    @abstractmethod
    def build(self, vocabulary: int) -> Encoder:
        """Return a newly initialized body, drawn from torch's global generator.

        Args:
            vocabulary: the number of token ids.
        """

    @property
    def provides(self) -> frozenset[str]:
        """Capabilities of this body."""
        return self.capabilities

    @property
    def requires(self) -> frozenset[str]:
        """What the layout must give: a body that carries state reads contiguous streams."""
        return frozenset({STREAMS}) if CARRY in self.provides else frozenset()

    @property
    @abstractmethod
    def head(self) -> HeadSpec:
        """The properties of the body that heads depend on."""

    def reads(self, kind: str) -> bool:
        """Return whether it can read a vocabulary of a kind: one of whole words if it reads characters."""
        return (kind == "words") == (CHARACTERS in self.provides)

    def check_length(self, length: int) -> None:
        """Check that it can be pretrained on sequences of up to `length` tokens.

        Raises:
            ValueError: it cannot.
        """
        if length > self.positions:
            raise ValueError(f"layout: the length {length} exceeds encoder.positions {self.positions}")

    def mismatch(self, pad: int) -> str:
        """Return the setting (KEY=VALUE) that a vocabulary with this padding id would require; "" if they match."""
        return ""


class TransformerSettings(BodySettings, frozen=True, kw_only=True):
    """Settings shared by the Transformers (Devlin et al. 2019, section 3).

    Attributes:
        layers, width, heads: L, H and A in the paper.
        activation: "gelu" (exact), "gelu_tanh" or "relu".
        init_std: standard deviation of the initial weights.
    """

    heads: int
    activation: Activation = "gelu"
    init_std: float = 0.02

    capabilities = frozenset(
        {BOTH_SIDES, TOKEN_EMBEDDINGS, POOLER, NARROW_BLOCKS, SCORES, SEPARATE_LAYERS, UNSEEN_TOKENS}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("heads", self.heads)
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be a multiple of heads {self.heads}")
        check_small("init_std", self.init_std)
        check_size("feed_forward", self.feed_forward)
        check_small("epsilon", self.epsilon)

    @property
    def shape(self) -> str:
        """See `BodySettings`."""
        return f"{super().shape}, {self.heads} heads"

    @property
    def feed_forward(self) -> int:
        """Inner width of the feed-forward layers, in most families a setting."""
        raise NotImplementedError

    @property
    def epsilon(self) -> float:
        """Epsilon of the LayerNorms, in most families a setting."""
        raise NotImplementedError

    @property
    def init(self) -> Initializer:
        """The weight initializer."""
        return Initializer(self.init_std)

    @property
    def head(self) -> HeadSpec:
        """See `BodySettings`; by default as in BERT."""
        return HeadSpec(
            width=self.width,
            init=self.init,
            activation=self.activation,
            lm_activation=self.activation,
            epsilon=self.epsilon,
            dropout=self.before_last,
            token_dropout=self.before_last,
            rnn_dropout=self.dropout,
            summary=self.summary,
        )

    @property
    def causal(self) -> bool:
        """Whether tokens attend only to themselves and to earlier tokens."""
        return False

    @property
    def rotation(self) -> Rotation | None:
        """How queries and keys are rotated by their positions; None: no rotation."""
        return None

    @property
    def sizes(self) -> Sizes:
        """The sizes of the layers."""
        return Sizes(self.width, self.heads, self.feed_forward)

    def block(self, number: int, sizes: Sizes) -> Layer:
        """Return one layer, by default of BERT's kind.

        Args:
            number: number of the layer, from 0, for families whose layers differ.
            sizes: its sizes, which may be others than those of the body.
        """
        return Block(*self.attention_parts(sizes), *self.feed_forward_parts(sizes), self.dropout)

    def attention_parts(self, sizes: Sizes) -> tuple[SelfAttention, LayerNorm]:
        """Return the attention of a layer of BERT's kind, and its LayerNorm."""
        spec = AttentionSpec(sizes.heads, self.dropout, causal=self.causal, rotation=self.rotation)
        return SelfAttention(sizes.width, spec), LayerNorm(sizes.width, self.epsilon)

    def feed_forward_parts(self, sizes: Sizes) -> tuple[FeedForward, LayerNorm]:
        """Return the feed-forward sublayer of a layer of BERT's kind, and its LayerNorm."""
        return FeedForward(sizes.width, sizes.inner, self.activation), LayerNorm(sizes.width, self.epsilon)

    def blocks(self) -> list[Layer]:
        """Return all layers."""
        return [self.block(number, self.sizes) for number in range(self.layers)]

    def compose(
        self,
        vocabulary: int,
        embeddings: Embeddings,
        blocks: Sequence[Layer],
        pooler: Pooler | NormedPooler | None,
    ) -> Transformer:
        """Return the newly initialized body composed of these parts."""
        body = Transformer(self, vocabulary, embeddings, blocks, pooler)
        self.init(body)
        return body


def check_size(name: str, value: int) -> None:
    """Check that a dimension is between 1 and `MAX_SIZE`.

    Raises:
        ValueError: the dimension is out of range.
    """
    if value < 1:
        raise ValueError(f"{name} must be at least 1")
    if value > MAX_SIZE:
        raise ValueError(f"{name} must be at most {MAX_SIZE:,}, not {value}")


def check_offsets(offsets: tuple[int, ...], heads: int) -> None:
    """Check that there are at most as many offsets as heads.

    Raises:
        ValueError: there are more.
    """
    if len(offsets) > heads:
        raise ValueError(f"initial_offsets has {len(offsets)} offsets, but a layer has only {heads} heads")


def check_rotary(width: int, heads: int, **bases: float) -> None:
    """Check that heads can be rotated with these bases, which are given by the names of their settings.

    Raises:
        ValueError: the heads have an odd width, or a base is not a finite number above 1.
    """
    if width // heads % 2:
        raise ValueError(f"rotary positions require heads of even width, not {width // heads}")
    for name, base in bases.items():
        if not 1 < base < float("inf"):
            raise ValueError(f"{name} must be above 1")


def check_small(name: str, value: float) -> None:
    """Check that a value is strictly between 0 and 1.

    Raises:
        ValueError: the value is out of range or NaN.
    """
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1")
