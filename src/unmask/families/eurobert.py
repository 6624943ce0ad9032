"""EuroBERT (Boizard et al. 2025, arXiv 2503.05500) and its checkpoint format (modeling_eurobert.py of transformers 5).

A Llama that attends to both sides: pre-norm layers with RMSNorm, rotary positions, gated feed-forward sublayers with
SiLU, no biases, and in larger models a key and a value for several heads. The masked-LM head is a linear layer of its
own. The only dropout is that of attention probabilities. The vector of a text goes through a dense layer with GELU;
means after that layer ("late") are not supported. transformers has no head for question answering.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import msgspec

from unmask.families.body import TransformerSettings, check_rotary
from unmask.families.format import (
    BERT_CONFIG,
    CLASSIFIERS,
    Family,
    Format,
    Names,
    architectures,
    check_only,
    read_rotation,
    write_rotation,
)
from unmask.nn.encoders.encoder import NARROW_BLOCKS, HeadSpec
from unmask.nn.encoders.transformer import Layer, Transformer
from unmask.nn.layers.block import Activation, GatedFeedForward, GroupedQueries, SelfAttention, Sizes, rms_block
from unmask.nn.layers.embeddings import Embeddings
from unmask.nn.layers.plain_attention import AttentionSpec
from unmask.nn.layers.pooler import Pooler
from unmask.nn.layers.rotary import Rotation

TENSORS: Names = {
    "embeddings.words.weight": "embed_tokens.weight",
    "blocks.{}.attention_norm": "layers.{}.input_layernorm",
    "blocks.{}.attention.qkv.query": "layers.{}.self_attn.q_proj",
    "blocks.{}.attention.qkv.key_value": ("layers.{}.self_attn.k_proj", "layers.{}.self_attn.v_proj"),
    "blocks.{}.attention.out": "layers.{}.self_attn.o_proj",
    "blocks.{}.feed_forward_norm": "layers.{}.post_attention_layernorm",
    "blocks.{}.feed_forward.up": ("layers.{}.mlp.gate_proj", "layers.{}.mlp.up_proj"),
    "blocks.{}.feed_forward.down": "layers.{}.mlp.down_proj",
    "blocks.{}.final_norm": "norm",
}
CONFIG = {
    **{name: key for name, key in BERT_CONFIG.items() if name != "segments"},
    **{"key_heads": "num_key_value_heads", "dropout": "attention_dropout", "epsilon": "rms_norm_eps"},
    "classifier_pooling": "classifier_pooling",
}
ONLY = {"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False}
"""Keys of config.json with the only values that are supported, those of published models."""


class EuroBertSettings(TransformerSettings, frozen=True, kw_only=True, tag="eurobert"):
    """The recipe's [encoder] for `kind = "eurobert"`; see `TransformerSettings`.

    Attributes:
        feed_forward: inner width of the feed-forward layers; their first matrix has twice as many outputs.
        key_heads: number of different keys and values, a divisor of `heads`; None: one for each head.
        epsilon: epsilon of the norms.
        base: base of the rotations.
        classifier_pooling: how heads read a text: "bos", its first token, or "mean" over all its tokens.
    """

    feed_forward: int
    key_heads: int | None = None
    positions: int = 8192
    dropout: float = 0.0
    activation: Activation = "silu"
    epsilon: float = 1e-5
    base: float = 250_000.0
    classifier_pooling: Literal["bos", "mean"] = "mean"

    capabilities = TransformerSettings.capabilities - {NARROW_BLOCKS}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key_heads is not None and (self.key_heads < 1 or self.heads % self.key_heads):
            raise ValueError(f"heads {self.heads} must be a multiple of key_heads {self.key_heads}")
        if self.key_heads == self.heads:
            msgspec.structs.force_setattr(self, "key_heads", None)
        check_rotary(self.width, self.heads, base=self.base)

    @property
    def head(self) -> HeadSpec:
        """See `TransformerSettings`."""
        mean = self.classifier_pooling == "mean"
        return replace(super().head, activation="gelu", mean=mean, untied=True, decoder_bias=False)

    def block(self, number: int, sizes: Sizes) -> Layer:
        """See `TransformerSettings`."""
        width, heads, inner = sizes
        spec = AttentionSpec(heads, self.dropout, rotation=Rotation(self.base))
        qkv = GroupedQueries(width, heads, self.key_heads or heads)
        attention = SelfAttention(width, spec, biased=False, qkv=qkv)
        feed_forward = GatedFeedForward(width, inner, 0.0, self.activation)
        return rms_block(attention, feed_forward, self.epsilon, last=number == self.layers - 1)

    def build(self, vocabulary: int) -> Transformer:
        """See `BodySettings`."""
        embeddings = Embeddings(vocabulary, 0, 0, self.width, None, dropout=0.0, epsilon=None)
        return self.compose(vocabulary, embeddings, self.blocks(), Pooler(self.width, "gelu"))


def read(config: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of rotations and of pooling.

    Raises:
        TypeError: a value is not supported.
    """
    check_only(config, ONLY)
    late = config.get("classifier_pooling", "late") == "late"  # in published models, which have no classifier
    if late and "EuroBertForSequenceClassification" in (config.get("architectures") or ()):
        raise TypeError("classifier_pooling: 'late' is not supported, only 'bos' and 'mean'")
    return {**({"classifier_pooling": "mean"} if late else {}), **read_rotation(config)}


def write(settings: EuroBertSettings) -> dict[str, Any]:
    """Return the keys of config.json for keys and rotations."""
    return {"num_key_value_heads": settings.key_heads or settings.heads, **write_rotation(settings.base)}


EUROBERT = Family(
    EuroBertSettings,
    Format(
        model_type="eurobert",
        prefix="model.",
        config=CONFIG,
        defaults={"hidden_act": "silu", "rope_theta": 10_000.0},  # published configs state 250,000
        always=ONLY,
        dropouts=(),
        head_dropout="unmask_head_dropout",
        tensors=TENSORS,
        head_pooler="dense",
        heads={"masked_lm": {"decoder": "lm_head"}, **CLASSIFIERS},
        unbiased=("lm_head",),
        decoder="",
        architectures=architectures("EuroBert"),
        read=read,
        write=write,
    ),
)
