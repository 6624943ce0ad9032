"""DeBERTa-v2 (He et al. 2021, arXiv 2006.03654) and v3 (He et al. 2023, arXiv 2111.09543): disentangled attention.

There is no table of positions: scores depend on distances (nn/layers/disentangled.py), whose embeddings all
layers share, so `positions` is only the maximum sequence length. Post-norm layers, LayerNorm epsilon 1e-7, exact GELU.
The vector of a text is [CLS] after a dense layer with GELU, which in transformers belongs to the heads
(modeling_deberta_v2.py of transformers 5). The enhanced mask decoder of the paper, and replaced token detection with
the shared embeddings of v3, are not implemented: it is pretrained with `masked_lm` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unmask.families.body import TransformerSettings, check_size
from unmask.families.format import (
    ACTIVATIONS,
    BERT_CONFIG,
    BERT_LM,
    BERT_QKV,
    BERT_TENSORS,
    TASK_HEADS,
    Family,
    Format,
    Tensors,
    architectures,
    in_layers,
)
from unmask.nn.encoders.encoder import NARROW_BLOCKS, UNSEEN_TOKENS
from unmask.nn.encoders.transformer import Transformer
from unmask.nn.layers.disentangled import Convolution, DisentangledAttention, DisentangledBlock, Distances
from unmask.nn.layers.embeddings import DistanceEmbeddings
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.pooler import Pooler, PoolerActivation


class DebertaSettings(TransformerSettings, frozen=True, kw_only=True, tag="deberta"):
    """The recipe's [encoder] for `kind = "deberta"`; see `TransformerSettings`.

    Attributes:
        feed_forward: inner width of the feed-forward layers.
        segments: number of segment ids; with 0, as in published models, only the separator marks the second text.
        epsilon: epsilon of the LayerNorms.
        distances: distance from which all distances share an embedding.
        buckets: number of embeddings of distances in each direction, logarithmic above half of it; None: one for each.
        normed_distances: whether embeddings of distances have a LayerNorm.
        convolution: number of tokens that the convolution beside the first layer reads; 0: there is none.
        convolution_activation: its activation.
    """

    feed_forward: int
    segments: int = 0
    epsilon: float = 1e-7
    distances: int = 512
    buckets: int | None = 256
    normed_distances: bool = True
    convolution: int = 0
    convolution_activation: PoolerActivation = "gelu"

    capabilities = TransformerSettings.capabilities - {NARROW_BLOCKS, UNSEEN_TOKENS}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_size("distances", self.distances)
        if self.segments:
            check_size("segments", self.segments)
        if self.buckets is not None:
            check_size("buckets", self.buckets)
            if self.buckets < 4 or self.buckets // 2 >= self.distances - 1:
                raise ValueError(f"buckets must be at least 4, and half of them below distances {self.distances} - 1")
        if self.convolution and self.convolution % 2 == 0:
            raise ValueError("convolution must be an odd number of tokens, or 0")
        if self.convolution:
            check_size("convolution", self.convolution)

    def build(self, vocabulary: int) -> Transformer:
        """See `BodySettings`."""
        epsilon = self.epsilon if self.normed_distances else None
        distances = Distances(self.width, self.distances, self.buckets, epsilon)
        embeddings = DistanceEmbeddings(
            vocabulary,
            0,
            self.segments,
            self.width,
            None,
            dropout=self.dropout,
            epsilon=self.epsilon,
            distances=distances,
        )
        blocks = [self._layer(number, distances) for number in range(self.layers)]
        return self.compose(vocabulary, embeddings, blocks, Pooler(self.width, "gelu"))

    def _layer(self, number: int, distances: Distances) -> DisentangledBlock:
        convolution = None
        if self.convolution and number == 0:
            convolution = Convolution(
                self.width, self.convolution, self.dropout, self.convolution_activation, self.epsilon
            )
        return DisentangledBlock(
            DisentangledAttention(self.width, self.heads, self.dropout, distances),
            LayerNorm(self.width, self.epsilon),
            *self.feed_forward_parts(self.sizes),
            self.dropout,
            convolution=convolution,
        )


KERNEL = "encoder.conv.conv.weight"
"""Their name of the kernels of the convolution: (out, in, size), where ours are a matrix of (out, size * in)."""


def to_hf(settings: DebertaSettings, tensors: Tensors) -> Tensors:
    """Return the tensors as directories store them."""
    if KERNEL not in tensors:
        return tensors
    kernels = tensors[KERNEL].view(settings.width, settings.convolution, settings.width).transpose(1, 2)
    return {**tensors, KERNEL: kernels}


def from_hf(settings: DebertaSettings, tensors: Tensors) -> tuple[DebertaSettings, Tensors]:
    """Return the settings unchanged, and the tensors as the body has them."""
    kernels = {KERNEL: tensors[KERNEL].transpose(1, 2).flatten(1)} if KERNEL in tensors else {}
    return settings, tensors | kernels


ONLY = {"relative_attention": True, "share_att_key": True, "position_biased_input": False}
"""Keys of config.json with the only values that are supported, those of published models."""
TERMS = ["p2c", "c2p"]
CONVOLUTION_ACTIVATIONS: dict[str, str] = {"tanh": "tanh", **ACTIVATIONS}
"""Maps values of conv_act to our names."""


def read_distances(config: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of distances and of the convolution.

    Raises:
        TypeError: the body differs from published models in another way.
    """
    for name, value in ONLY.items():
        if config.get(name) is not value:
            raise TypeError(f"{name}: {config.get(name)!r} is not supported, only {value!r}")
    terms = config.get("pos_att_type") or ()
    if sorted(terms.split("|") if isinstance(terms, str) else terms) != sorted(TERMS):
        raise TypeError(f"pos_att_type must be {' and '.join(TERMS)}")
    width, kernel = table.get("width"), config.get("conv_kernel_size", 0)
    for name in ("embedding_size", "pooler_hidden_size"):
        if config.get(name, width) != width:
            raise TypeError(f"{name} must be the width of the layers, {width}")
    if ACTIVATIONS.get(config.get("pooler_hidden_act", "gelu")) != "gelu" or config.get("conv_groups", 1) != 1:
        raise TypeError("pooler_hidden_act must be gelu, and conv_groups 1")
    activation = CONVOLUTION_ACTIVATIONS.get(config.get("conv_act", "tanh"))
    if kernel and activation is None:
        raise TypeError(f"conv_act: {config['conv_act']!r} is not supported")
    longest, buckets = config.get("max_relative_positions", -1), config.get("position_buckets", -1)
    return {
        "distances": longest if longest > 0 else table.get("positions", 512),
        "buckets": buckets if buckets > 0 else None,
        "normed_distances": "layer_norm" in str(config.get("norm_rel_ebd", "none")).split("|"),
        **({"convolution": kernel, "convolution_activation": activation} if kernel else {}),
    }


def write_distances(settings: DebertaSettings) -> dict[str, Any]:
    """Return the keys of config.json for distances and the convolution."""
    activation = {"gelu_tanh": "gelu_new"}.get(settings.convolution_activation, settings.convolution_activation)
    convolution = {"conv_kernel_size": settings.convolution, "conv_act": activation} if settings.convolution else {}
    return {
        "max_relative_positions": settings.distances,
        "position_buckets": settings.buckets or -1,
        "norm_rel_ebd": "layer_norm" if settings.normed_distances else "none",
        **convolution,
    }


DEBERTA = Family(
    DebertaSettings,
    Format(
        model_type="deberta-v2",
        prefix="deberta.",
        config=BERT_CONFIG,
        defaults={"type_vocab_size": 0},
        always={**ONLY, "pos_att_type": TERMS, "pooler_hidden_act": "gelu", "pooler_dropout": 0.0, "legacy": True},
        head_dropout="cls_dropout",
        tensors={
            **{own_name: stored_name for own_name, stored_name in BERT_TENSORS.items() if "positions" not in own_name},
            **in_layers("encoder.layer.{}", {"attention.qkv": tuple(f"{name}_proj" for name in BERT_QKV)}),
            "embeddings.distances.table.weight": "encoder.rel_embeddings.weight",
            "embeddings.distances.norm": "encoder.LayerNorm",
            "blocks.0.convolution.out": "encoder.conv.conv",
            "blocks.0.convolution.norm": "encoder.conv.LayerNorm",
        },
        to_hf=to_hf,
        from_hf=from_hf,
        head_pooler="pooler.dense",
        heads={"masked_lm": BERT_LM, **TASK_HEADS},
        decoder="cls.predictions.decoder.weight",
        former={
            "lm_predictions.lm_head.bias": "cls.predictions.bias",
            "lm_predictions.lm_head.": "cls.predictions.transform.",
        },
        architectures=architectures("DebertaV2"),
        read=read_distances,
        write=write_distances,
    ),
)
