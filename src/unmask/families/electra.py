"""ELECTRA's body (Clark et al. 2020, appendix A): BERT's with narrow embeddings in its small model; its directories.

Directories are those of modeling_electra.py of transformers 5: a projection of the embeddings is there only where the
widths differ, nothing is pooled in the body, and the head of whole texts has its own dense layer with GELU, with
dropout before it too. The masked-LM head is that of a generator, whose GELU does not follow the config. The program
draws the projection of the embeddings by Glorot's rule (modeling.py of google-research/electra).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from torch import nn

from unmask.encoders.encoder import HeadSpec
from unmask.encoders.transformer import Transformer
from unmask.families.bert import BertSettings
from unmask.families.body import check_size
from unmask.families.format import (
    BERT_BLOCK,
    BERT_CONFIG,
    BERT_EMBEDDINGS,
    BERT_QKV,
    TASK_HEADS,
    Family,
    Format,
    architectures,
)
from unmask.layers.pooler import Pooler


class ElectraSettings(BertSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="electra"):
    """The recipe's [encoder] for `kind = "electra"`; see `BertSettings`.

    Attributes:
        embedding: width of the embeddings, which are projected where it is not that of the layers; None: it is.
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
        return body


def read_embedding(config: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the width of the embeddings, where it is not that of the layers."""
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
        embeddings={**BERT_EMBEDDINGS, "embeddings.project": "embeddings_project"},
        layer="encoder.layer.{}",
        qkv=BERT_QKV,
        block=BERT_BLOCK,
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
            **TASK_HEADS,
            "classification": {"out": "classifier.out_proj"},
            "regression": {"out": "classifier.out_proj"},
        },
        decoder="generator_lm_head.weight",
        architectures=architectures("Electra", replaced_token="ForPreTraining"),
        without_pooler=("ElectraForMaskedLM", "ElectraForTokenClassification", "ElectraForQuestionAnswering"),
        read=read_embedding,
        write=write_embedding,
    ),
)
