"""ModernBERT (Warner et al. 2024, arXiv 2412.13663) and its format (modeling_modernbert.py), also Ettin's.

Pre-norm layers without biases, gated feed-forward sublayers, rotary positions, and local attention: only every third
layer is global. Local layers have another base of the rotation. There are no segments, so that only the separator marks
the second text of a pair. Every head reads texts and tokens through a dense layer with GELU and LayerNorm, which in a
masked language model is that of the masked-LM head: fine-tuning starts from it.

Weights are drawn from a normal distribution truncated at two standard deviations, those of the matrices whose output is
added to the residual stream scaled by 1 / sqrt(2 layers). As in other families, heads are drawn with `init_std`, where
transformers scales classifiers to 1 / sqrt(width), and dropout comes before the last layer of heads except question
answering. Of the layers only the attention can have biases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from unmask.families.body import TransformerSettings, check_offsets, check_rotary, check_size
from unmask.families.format import TEXTS, Family, Format, architectures, check_only, in_layers, read_base
from unmask.nn.encoders.encoder import HeadSpec, Initializer
from unmask.nn.encoders.transformer import Layer, Transformer
from unmask.nn.layers.block import GatedFeedForward, PreNormBlock, SelfAttention, Sizes
from unmask.nn.layers.embeddings import Embeddings
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.plain_attention import AttentionSpec
from unmask.nn.layers.pooler import NormedPooler
from unmask.nn.layers.rotary import Rotation

PLAIN = {
    "norm_bias": False,
    "mlp_bias": False,
    "decoder_bias": True,
    "classifier_bias": False,
    "classifier_activation": "gelu",
}
"""Keys of config.json with the only values that are supported, those of published models."""
GLOBAL, LOCAL = "full_attention", "sliding_attention"


class ModernBertSettings(TransformerSettings, frozen=True, kw_only=True, tag="modernbert"):
    """The recipe's [encoder] for `kind = "modernbert"`; see `TransformerSettings`.

    Attributes:
        feed_forward: inner width of the feed-forward layers; their first matrix has twice as many outputs.
        epsilon: epsilon of the LayerNorms.
        window: maximum distance, on each side, of the tokens that a token attends to in local layers: half of
            `local_attention` in config.json.
        global_every: distance of global layers, of which the first layer is one; 1: all layers are global.
        global_base, local_base: bases of the rotations in global and local layers.
        classifier_pooling: how heads read a text: "cls", or "mean" over all its tokens.
        attention_bias: whether the linear layers of the attention have biases; published models have none.
        initial_offsets: offsets of the tokens that the first heads of each layer attend to before training, such as
            (-1, 1) for the previous and the next token, which a small model otherwise takes long to discover.
    """

    feed_forward: int
    positions: int = 8192
    dropout: float = 0.0
    epsilon: float = 1e-5
    window: int = 64
    global_every: int = 3
    global_base: float = 160_000.0
    local_base: float = 10_000.0
    classifier_pooling: Literal["cls", "mean"] = "cls"
    attention_bias: bool = False
    initial_offsets: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("window", "global_every"):
            check_size(name, getattr(self, name))
        check_offsets(self.initial_offsets, self.heads)
        if self.initial_offsets and not self.attention_bias:
            raise ValueError("initial_offsets are set by biases: set attention_bias = true")
        check_rotary(self.width, self.heads, global_base=self.global_base, local_base=self.local_base)

    @property
    def init(self) -> Initializer:
        """See `TransformerSettings`."""
        return Initializer(self.init_std, sublayers=2 * self.layers, offsets=self.initial_offsets)

    @property
    def head(self) -> HeadSpec:
        """See `TransformerSettings`."""
        return replace(
            super().head,
            lm_activation="gelu",
            dense_bias=False,
            pools_tokens=True,
            mean=self.classifier_pooling == "mean",
        )

    @property
    def period(self) -> int:
        """See `BodySettings`."""
        return self.global_every

    def is_global(self, number: int) -> bool:
        """Return whether the tokens of a layer, counted from 0, attend to all tokens."""
        return number % self.global_every == 0

    def block(self, number: int, sizes: Sizes) -> Layer:
        """See `TransformerSettings`."""
        whole = self.is_global(number)
        rotation = Rotation(self.global_base if whole else self.local_base)
        window = None if whole else self.window
        norm = partial(LayerNorm, sizes.width, self.epsilon, bias=False)
        return PreNormBlock(
            None if number == 0 else norm(),
            SelfAttention(
                sizes.width,
                AttentionSpec(sizes.heads, self.dropout, rotation=rotation, window=window),
                biased=self.attention_bias,
            ),
            norm(),
            GatedFeedForward(sizes.width, sizes.inner, self.dropout, self.activation),
            norm() if number == self.layers - 1 else None,
            self.dropout,
        )

    def build(self, vocabulary: int) -> Transformer:
        """See `BodySettings`."""
        embeddings = Embeddings(
            vocabulary, 0, 0, self.width, None, dropout=self.dropout, epsilon=self.epsilon, biased=False
        )
        return self.compose(vocabulary, embeddings, self.blocks(), NormedPooler(self.width, self.epsilon))


def read_attention(config: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of global and local layers, from the keys of published models or those of transformers 5.

    Raises:
        TypeError: a value is not supported.
    """
    check_only(config, PLAIN)
    every, window = config.get("global_attn_every_n_layers", 3), config.get("local_attention", 128)
    layers, kinds = table.get("layers"), config.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers or kinds[0] != GLOBAL:
            raise TypeError(f"layer_types: not one per layer, of which the first is {GLOBAL}")
        every = kinds.index(GLOBAL, 1) if GLOBAL in kinds[1:] else len(kinds)
        if kinds != [LOCAL if number % every else GLOBAL for number in range(len(kinds))]:
            raise TypeError(f"layer_types: {GLOBAL} is not every {every} layers")
    if not isinstance(window, int):
        raise TypeError("local_attention must be an integer")
    settings = {"global_every": every, "window": config.get("sliding_window", window // 2)}
    rotations = config.get("rope_parameters") or {}
    for name, kind, key in (("global_base", GLOBAL, "global_rope_theta"), ("local_base", LOCAL, "local_rope_theta")):
        base = read_base(rotations.get(kind) or {}, config.get(key))
        settings |= {} if base is None else {name: base}
    return settings


def write_attention(settings: ModernBertSettings) -> dict[str, Any]:
    """Return the keys of config.json for global and local layers, which transformers reads since its version 4.48."""
    return {
        "global_attn_every_n_layers": settings.global_every,
        "local_attention": 2 * settings.window,
        "global_rope_theta": settings.global_base,
        "local_rope_theta": settings.local_base,
    }


TASK = {"out": "classifier"}
POOLED = (*TEXTS, "multiple_choice", "token_classification", "question_answering")

MODERNBERT = Family(
    ModernBertSettings,
    Format(
        model_type="modernbert",
        prefix="model.",
        config={
            "layers": "num_hidden_layers",
            "width": "hidden_size",
            "heads": "num_attention_heads",
            "feed_forward": "intermediate_size",
            "positions": "max_position_embeddings",
            "dropout": "mlp_dropout",
            "activation": "hidden_activation",
            "epsilon": "norm_eps",
            "init_std": "initializer_range",
            "classifier_pooling": "classifier_pooling",
            "attention_bias": "attention_bias",
        },
        defaults={"mlp_dropout": 0.0, "classifier_dropout": 0.0},
        always={**PLAIN, **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))},
        dropouts=("attention_dropout", "embedding_dropout"),
        tensors={
            "embeddings.words.weight": "embeddings.tok_embeddings.weight",
            "embeddings.norm": "embeddings.norm",
            **in_layers(
                "layers.{}",
                {
                    "attention.qkv": "attn.Wqkv",
                    "attention.out": "attn.Wo",
                    "attention_norm": "attn_norm",
                    "feed_forward.up": "mlp.Wi",
                    "feed_forward.down": "mlp.Wo",
                    "feed_forward_norm": "mlp_norm",
                },
            ),
            "blocks.{}.final_norm": "final_norm",
        },
        head_pooler="head",
        pooler_parts=("dense.weight", "norm.weight"),
        pooled=POOLED,
        heads={
            "masked_lm": {"dense": "head.dense", "norm": "head.norm", "bias": "decoder.bias"},
            **dict.fromkeys(POOLED, TASK),
        },
        unbiased=("head.dense", "head.norm"),
        decoder="decoder.weight",
        architectures=architectures("ModernBert"),
        read=read_attention,
        write=write_attention,
    ),
)
