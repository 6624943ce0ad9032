"""ELECTRA (Clark et al. 2020, arXiv 2003.10555, appendix A): BERT's body, narrow embeddings if small; its format.

Directories follow modeling_electra.py of transformers 5: embeddings are projected only if the widths differ, the body
has no pooler, and sequence-level heads have a dense layer of their own with GELU, preceded by dropout too. The
masked-LM head is that of a generator, whose GELU does not depend on the config. The projection of the embeddings is
initialized by Glorot's rule, as in the reference code (modeling.py of google-research/electra).
"""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from unmask.families.bert import NARROW_CONFIG, NarrowBertSettings, read_embedding, write_embedding
from unmask.families.format import (
    BERT_TENSORS,
    DENSE_HEADS,
    Family,
    Format,
    architectures,
)
from unmask.nn.encoders.encoder import HeadSpec
from unmask.nn.encoders.transformer import Transformer
from unmask.nn.layers.embeddings import pass_on_
from unmask.nn.layers.pooler import Pooler


class ElectraSettings(NarrowBertSettings, frozen=True, kw_only=True, tag="electra"):
    """The recipe's [encoder] for `kind = "electra"`; see `NarrowBertSettings`."""

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


ELECTRA = Family(
    ElectraSettings,
    Format(
        model_type="electra",
        prefix="electra.",
        config=NARROW_CONFIG,
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
