"""NomicBERT (Nussbaum et al. 2024, arXiv 2402.01613) and its format (modeling_nomic_bert.py of transformers 5).

BERT with rotary positions, gated feed-forward sublayers with SiLU, and no biases in either sublayer. Post-norm layers,
LayerNorm epsilon 1e-12, no dropout by default. The names of tensors are those of published files, which transformers
writes too; it has no head for question answering. So are some names of settings in published configs, which come from
the authors' own code and which transformers does not read: its defaults are the sizes of these models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unmask.families.body import TransformerSettings, check_rotary, check_size
from unmask.families.format import (
    BERT_CONFIG,
    BERT_LM,
    CLASSIFIERS,
    Family,
    Format,
    architectures,
    check_only,
    in_layers,
    read_rotation,
    without_pooler,
    write_rotation,
)
from unmask.nn.encoders.transformer import Layer, Transformer
from unmask.nn.layers.block import Activation, Block, GatedFeedForward, SelfAttention, Sizes
from unmask.nn.layers.embeddings import Embeddings
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.plain_attention import AttentionSpec
from unmask.nn.layers.pooler import Pooler
from unmask.nn.layers.rotary import Rotation


class NomicBertSettings(TransformerSettings, frozen=True, kw_only=True, tag="nomicbert"):
    """The recipe's [encoder] for `kind = "nomicbert"`; see `TransformerSettings`.

    Attributes:
        feed_forward: inner width of the feed-forward layers; their first matrix has twice as many outputs.
        segments: number of segment ids; with 1, only the separator marks the second text of a pair.
        epsilon: epsilon of the LayerNorms.
        base: base of the rotations.
    """

    feed_forward: int
    segments: int = 2
    positions: int = 2048
    dropout: float = 0.0
    activation: Activation = "silu"
    epsilon: float = 1e-12
    base: float = 1000.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("segments", self.segments)
        check_rotary(self.width, self.heads, base=self.base)

    def block(self, number: int, sizes: Sizes) -> Layer:
        """See `TransformerSettings`."""
        spec = AttentionSpec(sizes.heads, self.dropout, rotation=Rotation(self.base))
        return Block(
            SelfAttention(sizes.width, spec, biased=False),
            LayerNorm(sizes.width, self.epsilon),
            GatedFeedForward(sizes.width, sizes.inner, 0.0, self.activation),
            LayerNorm(sizes.width, self.epsilon),
            self.dropout,
        )

    def build(self, vocabulary: int) -> Transformer:
        """See `BodySettings`."""
        embeddings = Embeddings(
            vocabulary, 0, self.segments, self.width, None, dropout=self.dropout, epsilon=self.epsilon
        )
        return self.compose(vocabulary, embeddings, self.blocks(), Pooler(self.width, "tanh"))


PUBLISHED = {
    "layers": "n_layer",
    "width": "n_embd",
    "heads": "n_head",
    "feed_forward": "n_inner",
    "positions": "n_positions",
    "epsilon": "layer_norm_epsilon",
    "base": "rotary_emb_base",
}
"""Keys of config.json in published models, where it lacks those of transformers."""
ONLY = {
    "activation_function": "swiglu",
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "prenorm": False,
    "parallel_block": False,
    "causal": False,
}
"""Further ones with the only values that are supported; what others change is to be seen from the weights."""


def read_published(config: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the base of the rotations, and the settings that only the names of published models state.

    Raises:
        TypeError: a value is not supported.
    """
    check_only(config, ONLY)
    known = {**table, **(rotation := read_rotation(config))}
    stated = {name: config[key] for name, key in PUBLISHED.items() if name not in known and key in config}
    return rotation | stated


NOMICBERT = Family(
    NomicBertSettings,
    Format(
        model_type="nomic_bert",
        prefix="nomic_bert.",
        config=BERT_CONFIG,
        defaults={"hidden_act": "silu", "hidden_dropout_prob": 0.0},
        tensors={
            "embeddings.words.weight": "embeddings.word_embeddings.weight",
            "embeddings.segments.weight": "embeddings.token_type_embeddings.weight",
            "embeddings.norm": "emb_ln",
            **in_layers(
                "encoder.layers.{}",
                {
                    "attention.qkv": "attn.Wqkv",
                    "attention.out": "attn.out_proj",
                    "attention_norm": "norm1",
                    "feed_forward.up": ("mlp.fc12", "mlp.fc11"),
                    "feed_forward.down": "mlp.fc2",
                    "feed_forward_norm": "norm2",
                },
            ),
        },
        pooler="pooler.dense",
        heads={
            "masked_lm": {**BERT_LM, "norm": "cls.predictions.transform.layer_norm"},
            **CLASSIFIERS,
        },
        decoder="cls.predictions.decoder.weight",
        architectures=architectures("NomicBert"),
        without_pooler=without_pooler("NomicBert", "Model"),
        read=read_published,
        write=lambda settings: write_rotation(settings.base),
    ),
)
