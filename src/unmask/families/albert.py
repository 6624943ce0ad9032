"""ALBERT (Lan et al. 2020, section 3.1) with narrow embeddings and shared layers; its format (modeling_albert.py).

Directories store layers in groups, within which all layers share their weights. They always contain a projection of the
embeddings, which is the identity if the body has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from unmask.families.bert import BertSettings
from unmask.families.body import check_size
from unmask.families.format import (
    BERT_CONFIG,
    BERT_EMBEDDINGS,
    SHARED_KEY,
    TASK_HEADS,
    Family,
    Format,
    architectures,
)
from unmask.nn.encoders.encoder import SEPARATE_LAYERS
from unmask.nn.encoders.transformer import Transformer
from unmask.nn.layers.block import Block
from unmask.nn.layers.norm import Pooler

PROJECT = "embeddings.project"


class AlbertSettings(BertSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="albert"):
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
    def gives(self) -> frozenset[str]:
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

    def owner(self, layer: int, part: str) -> int:
        """See `TransformerSettings`."""
        return 0 if self.shared in ("all", part) else layer


def stored_layers(settings: AlbertSettings) -> int:
    """Return the number of layers that a directory stores: one if all layers share their weights."""
    return 1 if settings.shared == "all" else settings.layers


def identity(settings: AlbertSettings) -> dict[str, Tensor]:
    """Return the identity projection that directories contain if the body has no projection."""
    if settings.embedding is not None:
        return {}
    return {f"{PROJECT}.weight": torch.eye(settings.width), f"{PROJECT}.bias": torch.zeros(settings.width)}


def without_identity(settings: AlbertSettings, tensors: Mapping[str, Tensor]) -> AlbertSettings:
    """Return the settings without a projection if the stored one is the identity."""
    weight, bias = tensors[f"{PROJECT}.weight"], tensors[f"{PROJECT}.bias"]
    if settings.embedding != settings.width or bias.any():
        return settings
    if not torch.equal(weight, torch.eye(len(weight), dtype=weight.dtype)):
        return settings
    return msgspec.structs.replace(settings, embedding=None)


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
        embeddings={**BERT_EMBEDDINGS, PROJECT: "encoder.embedding_hidden_mapping_in"},
        layer="encoder.albert_layer_groups.{}.albert_layers.0",
        stored_layers=stored_layers,
        qkv=("attention.query", "attention.key", "attention.value"),
        block={
            "attention.out": "attention.dense",
            "attention_norm": "attention.LayerNorm",
            "feed_forward.up": "ffn",
            "feed_forward.down": "ffn_output",
            "feed_forward_norm": "full_layer_layer_norm",
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
        lacking=identity,
        simplify=without_identity,
    ),
)
