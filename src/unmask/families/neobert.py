"""NeoBERT (Le Breton et al. 2025, arXiv 2502.19587) and its checkpoint format (the code published with the model).

Pre-norm layers with RMSNorm, positions by rotations of adjacent pairs, gated feed-forward sublayers with SiLU, no
biases, and by default no dropout. The masked-LM head is a linear layer of its own. Heads of texts have a dense layer
with tanh on [CLS], with dropout on both sides. In directories query, key and value of a head are adjacent, and
`intermediate_size` is one and a half times the inner width, which is a multiple of 8. Heads of tokens are stored under
names of our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from unmask.families.body import TransformerSettings, check_rotary
from unmask.families.format import CLASSIFIERS, Family, Format, Names, Tensors, architectures, check_only, in_layers
from unmask.nn.encoders.encoder import HeadSpec
from unmask.nn.encoders.transformer import Layer, Transformer
from unmask.nn.layers.block import Activation, GatedFeedForward, SelfAttention, Sizes, rms_block
from unmask.nn.layers.embeddings import Embeddings
from unmask.nn.layers.plain_attention import AttentionSpec
from unmask.nn.layers.pooler import Pooler
from unmask.nn.layers.rotary import Rotation

MULTIPLE = 8
"""The inner width is a multiple of this."""


class NeoBertSettings(TransformerSettings, frozen=True, kw_only=True, tag="neobert"):
    """The recipe's [encoder] for `kind = "neobert"`; see `TransformerSettings`.

    Attributes:
        feed_forward: inner width of the feed-forward layers; their first matrix has twice as many outputs.
        epsilon: epsilon of the norms.
    """

    feed_forward: int
    positions: int = 4096
    dropout: float = 0.0
    activation: Activation = "silu"
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.feed_forward % MULTIPLE:
            raise ValueError(f"feed_forward must be a multiple of {MULTIPLE}")
        check_rotary(self.width, self.heads)

    @property
    def head(self) -> HeadSpec:
        """See `TransformerSettings`."""
        return replace(super().head, untied=True, pooler_dropout=self.before_last)

    def block(self, number: int, sizes: Sizes) -> Layer:
        """See `TransformerSettings`; attention probabilities have no dropout."""
        spec = AttentionSpec(sizes.heads, rotation=Rotation(interleaved=True))
        attention = SelfAttention(sizes.width, spec, biased=False)
        feed_forward = GatedFeedForward(sizes.width, sizes.inner, self.dropout, self.activation)
        return rms_block(attention, feed_forward, self.epsilon, last=number == self.layers - 1, dropout=self.dropout)

    def build(self, vocabulary: int) -> Transformer:
        """See `BodySettings`."""
        embeddings = Embeddings(vocabulary, 0, 0, self.width, None, dropout=0.0, epsilon=None)
        return self.compose(vocabulary, embeddings, self.blocks(), Pooler(self.width, "tanh"))


def read(config: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inner width.

    Raises:
        TypeError: the body is one of the variants that the published code has beside the published model.
    """
    check_only(config, ONLY)
    inner = 2 * config.get("intermediate_size", 3072) // 3
    return {"feed_forward": inner + -inner % MULTIPLE}


def write(settings: NeoBertSettings) -> dict[str, Any]:
    """Return the key of config.json for the inner width."""
    return {"intermediate_size": 3 * settings.feed_forward // 2}


def to_hf(settings: NeoBertSettings, tensors: Tensors) -> Tensors:
    """Return the tensors as directories store them."""
    return {name: _swap(value, 3, settings.heads) if ".qkv." in name else value for name, value in tensors.items()}


def from_hf(settings: NeoBertSettings, tensors: Tensors) -> tuple[NeoBertSettings, Tensors]:
    """Return the settings unchanged, and the tensors as the body has them."""
    heads = settings.heads
    return settings, {name: _swap(v, heads, 3) if ".qkv." in name else v for name, v in tensors.items()}


def _swap(matrix: Tensor, outer: int, inner: int) -> Tensor:
    """Return a matrix, whose rows are those of `outer` parts with `inner` parts each, in the other order."""
    return matrix.view(outer, inner, -1, matrix.shape[1]).transpose(0, 1).reshape(matrix.shape)


LAYER: Names = {
    "attention_norm": "attention_norm",
    "attention.qkv": "qkv",
    "attention.out": "wo",
    "feed_forward_norm": "ffn_norm",
    "feed_forward.up": "ffn.w12",
    "feed_forward.down": "ffn.w3",
}
ONLY = {"hidden_act": "SwiGLU", "rms_norm": True, "rope": True, "ngpt": False, "tie_word_embeddings": False}
"""Keys of config.json with the only values that are supported, those of the published model."""
NEOBERT = Family(
    NeoBertSettings,
    Format(
        model_type="neobert",
        prefix="model.",
        config={
            "layers": "num_hidden_layers",
            "width": "hidden_size",
            "heads": "num_attention_heads",
            "positions": "max_length",
            "dropout": "dropout",
            "activation": "hidden_act",
            "epsilon": "norm_eps",
            "init_std": "embedding_init_range",
        },
        defaults={"hidden_act": "SwiGLU", "dropout": 0.0},
        always=ONLY,
        activations={"SwiGLU": "silu"},
        dropouts=(),
        tensors={
            "embeddings.words.weight": "encoder.weight",
            **in_layers("transformer_encoder.{}", LAYER),
            "blocks.{}.final_norm": "layer_norm",
        },
        to_hf=to_hf,
        from_hf=from_hf,
        head_pooler="dense",
        heads={
            "masked_lm": {"decoder": "decoder"},
            **{head: names for head, names in CLASSIFIERS.items() if head != "token_classification"},
        },
        decoder="",
        architectures={**architectures("NeoBERT"), (): "NeoBERT", ("masked_lm",): "NeoBERTLMHead"},
        read=read,
        write=write,
    ),
)
