"""XLNet (Yang et al. 2019, arXiv 1906.08237): two streams, relative positions, memory; its files (modeling_xlnet.py).

Post-norm layers without biases in the attention, LayerNorm epsilon 1e-12, exact GELU (the paper's; the reference code
approximates it by tanh, transformers computes it exactly), all weights and biases of queries from a normal distribution
of standard deviation 0.02. Positions are relative, so `positions` is only the maximum sequence length. Special tokens
follow the text, and the vector of a text is read at the last one, [CLS], through a dense layer with tanh.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from unmask.data.batches.sources import DIRECTED
from unmask.families.body import MAX_SIZE, TransformerSettings, check_offsets, check_size
from unmask.families.format import TASK_HEADS, Family, Format, Names, Tensors, architectures, check_only, in_layers
from unmask.nn.encoders.encoder import (
    BOTH_SIDES,
    CARRY,
    POOLER,
    SEPARATE_LAYERS,
    TOKEN_EMBEDDINGS,
    TWO_STREAMS,
    HeadSpec,
    Initializer,
)
from unmask.nn.encoders.two_streams import TwoStreams
from unmask.nn.layers.embeddings import Embeddings
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.pooler import Pooler
from unmask.nn.layers.relative import RelativeAttention, RelativeBlock


class XlnetSettings(TransformerSettings, frozen=True, kw_only=True, tag="xlnet"):
    """The recipe's [encoder] for `kind = "xlnet"`; see `TransformerSettings`.

    Attributes:
        feed_forward: inner width of the feed-forward layers.
        epsilon: epsilon of the LayerNorms.
        memory: number of tokens of the previous windows that a window attends to; 0: none.
        window: number of tokens above which a sequence is read in windows, with memory; None: it is read at once.
        initial_offsets: offsets of the tokens that the first heads of each layer attend to before training, such as
            (-1, 1) for the previous and the next token, which a small model otherwise takes long to discover.
    """

    feed_forward: int
    positions: int = 65_536
    epsilon: float = 1e-12
    memory: int = 0
    window: int | None = None
    initial_offsets: tuple[int, ...] = ()

    summary = "last"
    capabilities = frozenset({BOTH_SIDES, TOKEN_EMBEDDINGS, POOLER, SEPARATE_LAYERS, TWO_STREAMS, CARRY, DIRECTED})

    def __post_init__(self) -> None:
        super().__post_init__()
        check_offsets(self.initial_offsets, self.heads)
        if not 0 <= self.memory <= MAX_SIZE:
            raise ValueError(f"memory must be between 0 and {MAX_SIZE:,}")
        if self.window is not None:
            check_size("window", self.window)
            if not self.memory:
                raise ValueError("window has no effect without memory: remove it, or set memory")
        if self.width % 2:
            raise ValueError(f"width {self.width} must be even: distances are pairs of sine and cosine")

    @property
    def provides(self) -> frozenset[str]:
        """See `BodySettings`; without memory no state is carried."""
        return self.capabilities if self.memory else self.capabilities - {CARRY}

    @property
    def segments(self) -> int:
        """See `BodySettings`: the first text, the second one, and [CLS]; only compared."""
        return 3

    def check_length(self, length: int) -> None:
        """See `BodySettings`; memory is at most as long as the window that reads it."""
        super().check_length(length)
        if self.memory > length:
            raise ValueError(
                f"encoder.memory {self.memory} exceeds the windows of {length} tokens: decrease it, or increase "
                "layout.length"
            )

    @property
    def init(self) -> Initializer:
        """See `TransformerSettings`."""
        return Initializer(self.init_std, truncated=False)

    @property
    def head(self) -> HeadSpec:
        """See `TransformerSettings`; the body itself ends with dropout."""
        return replace(super().head, token_dropout=0.0)

    def build(self, vocabulary: int) -> TwoStreams:
        """See `BodySettings`."""
        embeddings = Embeddings(vocabulary, 0, 0, self.width, None, dropout=self.dropout, epsilon=None)
        blocks = [
            RelativeBlock(
                RelativeAttention(self.width, self.heads, self.dropout),
                LayerNorm(self.width, self.epsilon),
                *self.feed_forward_parts(self.sizes),
                self.dropout,
            )
            for _ in range(self.layers)
        ]
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


BY_HEADS = ("rel_attn.q", "rel_attn.k", "rel_attn.v", "rel_attn.r")
"""Ends of their names of matrices that are stored as (in, heads, head width)."""
OUT, QUERY = "rel_attn.o", "mask_emb"
"""Those of the output projection, (out, heads, head width), and of the query stream's first vector, (1, 1, width)."""


def to_hf(settings: XlnetSettings, tensors: Tensors) -> Tensors:
    """Return the tensors as directories store them."""
    stored = dict(tensors)
    for name, value in tensors.items():
        if name.endswith((*BY_HEADS, OUT)):
            matrix = value if name.endswith(OUT) else value.t()
            stored[name] = matrix.reshape(settings.width, settings.heads, -1)
        elif name == QUERY:
            stored[name] = value.view(1, 1, -1)
    return stored


def from_hf(settings: XlnetSettings, tensors: Tensors) -> tuple[XlnetSettings, Tensors]:
    """Return the settings unchanged, and the tensors as the body has them."""
    loaded = dict(tensors)
    for name, value in tensors.items():
        if name.endswith((*BY_HEADS, OUT)):
            matrix = value.flatten(1)
            loaded[name] = matrix if name.endswith(OUT) else matrix.t().contiguous()
        elif name == QUERY:
            loaded[name] = value.view(-1)
    return settings, loaded


PARTS: Names = {
    "attention.query.weight": "rel_attn.q",
    "attention.key_value.weight": ("rel_attn.k", "rel_attn.v"),
    "attention.distance.weight": "rel_attn.r",
    "attention.out.weight": "rel_attn.o",
    "attention.content_bias": "rel_attn.r_w_bias",
    "attention.distance_bias": "rel_attn.r_r_bias",
    "attention.segment_bias": "rel_attn.r_s_bias",
    "attention.segments": "rel_attn.seg_embed",
    "attention_norm": "rel_attn.layer_norm",
    "feed_forward.up": "ff.layer_1",
    "feed_forward.down": "ff.layer_2",
    "feed_forward_norm": "ff.layer_norm",
}
"""Our tensors of a layer, and theirs."""
ONLY = {
    "attn_type": "bi",
    "bi_data": False,
    "clamp_len": -1,
    "same_length": False,
    "untie_r": True,
    "summary_type": "last",
    "summary_use_proj": True,
    "summary_activation": "tanh",
}
"""Keys of config.json with the only values that are supported, those of published models."""


def read_memory(config: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of tokens of memory.

    Raises:
        TypeError: the body differs from that of published models in what it attends to or how it is summarized.
    """
    check_only(config, ONLY)
    return {"memory": config.get("mem_len") or 0}


def write_memory(settings: XlnetSettings) -> dict[str, Any]:
    """Return the keys of config.json for the memory and the width of the heads."""
    return {"mem_len": settings.memory or None, "d_head": settings.width // settings.heads}


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
            "positions": "unmask_positions",
            "window": "unmask_window",
            "dropout": "dropout",
            "activation": "ff_activation",
            "epsilon": "layer_norm_eps",
            "init_std": "initializer_range",
        },
        defaults={"n_layer": 24, "d_model": 1024, "n_head": 16, "d_inner": 4096},
        always=ONLY,
        dropouts=(),
        head_dropout="summary_last_dropout",
        tensors={
            "embeddings.words.weight": "word_embedding.weight",
            "query": QUERY,
            **in_layers("layer.{}", PARTS),
        },
        to_hf=to_hf,
        from_hf=from_hf,
        head_pooler="sequence_summary.summary",
        heads={
            "permutation_lm": {"bias": "lm_loss.bias"},
            **TASK_HEADS,
            "classification": {"out": "logits_proj"},
            "multi_label": {"out": "logits_proj"},
            "regression": {"out": "logits_proj"},
            "ranking": {"out": "logits_proj"},
            "multiple_choice": {"out": "logits_proj"},
            "answer_beams": {
                "start": "start_logits.dense",
                "end_dense": "end_logits.dense_0",
                "end_norm": "end_logits.LayerNorm",
                "end_out": "end_logits.dense_1",
                "class_dense": "answer_class.dense_0",
                "class_out": "answer_class.dense_1",
            },
        },
        unbiased=("answer_class.dense_1",),
        decoder="lm_loss.weight",
        architectures={
            **architectures("XLNet"),
            ("question_answering",): "XLNetForQuestionAnsweringSimple",
            ("answer_beams",): "XLNetForQuestionAnswering",
            ("permutation_lm",): "XLNetLMHeadModel",
        },
        read=read_memory,
        write=write_memory,
    ),
)
