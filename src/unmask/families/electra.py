"""ELECTRA (Clark et al. 2020, appendix A): BERT's body, with narrow embeddings in the small model; its format.

Directories follow modeling_electra.py of transformers 5: embeddings are projected only if the widths differ, the body
has no pooler, and sequence-level heads have a dense layer of their own with GELU, preceded by dropout too. The
masked-LM head is that of a generator, whose GELU does not depend on the config. The projection of the embeddings is
initialized by Glorot's rule, as in the reference code (modeling.py of google-research/electra).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from torch import nn

from unmask.families.bert import BertSettings
from unmask.families.body import check_size
from unmask.families.format import (
    BERT_CONFIG,
    BERT_TENSORS,
    DENSE_HEADS,
    Family,
    Format,
    architectures,
)
from unmask.nn.encoders.encoder import HeadSpec
from unmask.nn.encoders.transformer import Transformer
from unmask.nn.layers.embeddings import pass_on_
from unmask.nn.layers.norm import Pooler


class ElectraSettings(BertSettings, frozen=True, kw_only=True, tag="electra"):
    """The recipe's [encoder] for `kind = "electra"`; see `BertSettings`.

    Attributes:
        embedding: width of the embeddings, projected to the width of the layers; None: the same width.
    """

    embedding: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embedding is not None:
            check_size("embedding", self.embedding)
        if self.embedding == self.width:
            msgspec.structs.force_setattr(self, "embedding", None)

    @property
    def head(self) -> HeadSpec:
        """See `TransformerSettings`."""
        return replace(super().head, lm_activation="gelu", pooler_dropout=self.before_last)

    def build(self, vocabulary: int) -> Transformer:
        """See `BodySettings`."""
        embeddings = self.embeddings(vocabulary, narrow=self.embedding)
        body = self.compose(vocabulary, embeddings, self.blocks(), Pooler(self.width, "gelu"))
        if embeddings.project is not None:
            nn.init.xavier_uniform_(embeddings.project.weight)
            if self.initial_offsets:
                pass_on_(embeddings.project)
        return body


def read_embedding(config: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the width of the embeddings, or None if it equals that of the layers."""
    return {"embedding": None if table["embedding"] == table.get("width") else table["embedding"]}


def write_embedding(settings: ElectraSettings) -> dict[str, Any]:
    """Return the key of config.json for the width of the embeddings."""
    return {"embedding_size": settings.embedding or settings.width}


ELECTRA = Family(
    ElectraSettings,
    Format(
        model_type="electra",
        prefix="electra.",
        config={**BERT_CONFIG, "embedding": "embedding_size"},
        defaults={"embedding_size": 128},
        always={"summary_use_proj": True, "summary_activation": "gelu"},
        tensors={**BERT_TENSORS, "embeddings.project": "embeddings_project"},
        head_pooler="classifier.dense",
        heads={
            "masked_lm": {
                "dense": "generator_predictions.dense",
                "norm": "generator_predictions.LayerNorm",
                "bias": "generator_lm_head.bias",
            },
            "replaced_token": {
                "dense": "discriminator_predictions.dense",
                "out": "discriminator_predictions.dense_prediction",
            },
            **DENSE_HEADS,
        },
        decoder="generator_lm_head.weight",
        architectures=architectures("Electra", replaced_token="ForPreTraining"),
        read=read_embedding,
        write=write_embedding,
    ),
)
