"""ALBERT (Lan et al. 2020, arXiv 1909.11942): narrow embeddings, shared layers; its format (modeling_albert.py).

Directories store layers in groups, within which all layers share their weights. They always contain a projection of the
embeddings, which is the identity if the body has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import torch

from unmask.families.bert import BertSettings
from unmask.families.body import check_size
from unmask.families.format import (
    BERT_CONFIG,
    BERT_EMBEDDINGS,
    SHARED_KEY,
    TASK_HEADS,
    Family,
    Format,
    Tensors,
    architectures,
    in_layers,
)
from unmask.nn.encoders.encoder import SEPARATE_LAYERS
from unmask.nn.encoders.transformer import Transformer
from unmask.nn.layers.block import Block
from unmask.nn.layers.pooler import Pooler

INSIDE = "albert_layers.0."
LAYER = "encoder.albert_layer_groups.{}." + INSIDE
FIRST = LAYER.format(0)
"""Their beginnings of the names in a layer, and in the first one."""
WORDS, PROJECT = "embeddings.word_embeddings.weight", "encoder.embedding_hidden_mapping_in"
"""Their names of the token embeddings and of the projection."""


class AlbertSettings(BertSettings, frozen=True, kw_only=True, tag="albert"):
    """The recipe's [encoder] for `kind = "albert"`; see `BertSettings`.

    Attributes:
        embedding: width of the embeddings, which are projected; None: the width of the layers, without a projection.
        shared: the sublayers that all layers share: "all", "attention", "feed_forward" or "none".
    """

    embedding: int | None = None
    shared: Literal["all", "attention", "feed_forward", "none"] = "all"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embedding is not None:
            check_size("embedding", self.embedding)

    @property
    def provides(self) -> frozenset[str]:
        """See `BodySettings`."""
        return self.capabilities - (frozenset() if self.shared == "none" else {SEPARATE_LAYERS})

    def build(self, vocabulary: int) -> Transformer:
        """See `BodySettings`."""
        embeddings = self.embeddings(vocabulary, narrow=self.embedding)
        first = Block(*self.attention_parts(self.sizes), *self.feed_forward_parts(self.sizes), self.dropout)
        others = [] if self.shared == "all" else [self._beside(first) for _ in range(1, self.layers)]
        return self.compose(vocabulary, embeddings, [first, *others], Pooler(self.width, "tanh"))

    def _beside(self, first: Block) -> Block:
        """Return another layer, with the sublayer of the first one that all layers share."""
        attention = first.attention, first.attention_norm
        if self.shared != "attention":
            attention = self.attention_parts(self.sizes)
        feed_forward = first.feed_forward, first.feed_forward_norm
        if self.shared != "feed_forward":
            feed_forward = self.feed_forward_parts(self.sizes)
        return Block(*attention, *feed_forward, dropout=self.dropout, shared=(self.shared,))


def stored_layers(settings: AlbertSettings) -> int:
    """Return the number of layers that a directory stores: one if all layers share their weights."""
    return 1 if settings.shared == "all" else settings.layers


def to_hf(settings: AlbertSettings, tensors: Tensors) -> Tensors:
    """Return the tensors with a copy of the shared sublayer for each layer, and a projection, be it the identity."""
    stored = dict(tensors)
    if settings.shared in ("attention", "feed_forward"):
        for name, value in tensors.items():
            if name.startswith(FIRST) and _sublayer(name) == settings.shared:
                stored |= {f"{LAYER.format(number)}{name[len(FIRST) :]}": value for number in range(1, settings.layers)}
    if settings.embedding is None:
        like = tensors[WORDS]
        stored[f"{PROJECT}.weight"] = torch.eye(settings.width, device=like.device)
        stored[f"{PROJECT}.bias"] = torch.zeros(settings.width, device=like.device)
    return stored


def from_hf(settings: AlbertSettings, tensors: Tensors) -> tuple[AlbertSettings, Tensors]:
    """Return the settings and the tensors without copies, and without a projection that is the identity.

    Raises:
        ValueError: a copy differs.
    """
    if settings.shared in ("attention", "feed_forward"):
        for name in [name for name in tensors if _sublayer(name) == settings.shared]:
            first = FIRST + name.partition(INSIDE)[2]
            if not torch.equal(tensors[name], tensors[first]):
                raise ValueError(f"{name} differs between layers, which config.json specifies to be shared")
    weight, bias = tensors[f"{PROJECT}.weight"], tensors[f"{PROJECT}.bias"]
    if settings.embedding != settings.width or bias.any():
        return settings, tensors
    if not torch.equal(weight, torch.eye(len(weight), dtype=weight.dtype)):
        return settings, tensors
    others = {name: value for name, value in tensors.items() if not name.startswith(PROJECT)}
    return msgspec.structs.replace(settings, embedding=None), others


def _sublayer(name: str) -> str:
    """Return the sublayer that a tensor (by their name) belongs to; "" if it is in no layer."""
    _, inside, part = name.partition(INSIDE)
    return ("attention" if part.startswith("attention") else "feed_forward") if inside else ""


def read_groups(config: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the setting of shared sublayers.

    Raises:
        TypeError: the layers are grouped in a way that is not supported.
    """
    groups = config.get("num_hidden_groups", 1)
    if config.get("inner_group_num", 1) != 1 or groups not in (1, table.get("layers")):
        raise TypeError("several groups of layers, or several layers per group")
    return {"shared": "all" if groups == 1 else config.get(SHARED_KEY, "none")}


def write_groups(settings: AlbertSettings) -> dict[str, Any]:
    """Return the keys of config.json for shared sublayers and the width of the embeddings."""
    partly = {SHARED_KEY: settings.shared} if settings.shared in ("attention", "feed_forward") else {}
    width = settings.embedding or settings.width
    return {"embedding_size": width, "num_hidden_groups": stored_layers(settings), **partly}


ALBERT = Family(
    AlbertSettings,
    Format(
        model_type="albert",
        prefix="albert.",
        config={**BERT_CONFIG, "embedding": "embedding_size"},
        defaults={
            "embedding_size": 128,
            "hidden_act": "gelu_new",
            "hidden_dropout_prob": 0.0,
            "classifier_dropout_prob": 0.1,
        },
        head_dropout="classifier_dropout_prob",
        always={"inner_group_num": 1},
        tensors={
            **BERT_EMBEDDINGS,
            "embeddings.project": PROJECT,
            **in_layers(
                LAYER.removesuffix("."),
                {
                    "attention.qkv": ("attention.query", "attention.key", "attention.value"),
                    "attention.out": "attention.dense",
                    "attention_norm": "attention.LayerNorm",
                    "feed_forward.up": "ffn",
                    "feed_forward.down": "ffn_output",
                    "feed_forward_norm": "full_layer_layer_norm",
                },
            ),
        },
        pooler="pooler",
        heads={
            "masked_lm": {"dense": "predictions.dense", "norm": "predictions.LayerNorm", "bias": "predictions.bias"},
            "sentence_order": {"out": "sop_classifier.classifier"},
            **TASK_HEADS,
        },
        decoder="predictions.decoder.weight",
        architectures=architectures("Albert", masked_lm__sentence_order="ForPreTraining"),
        without_pooler=("AlbertForTokenClassification", "AlbertForQuestionAnswering"),
        read=read_groups,
        write=write_groups,
        to_hf=to_hf,
        from_hf=from_hf,
    ),
)
