"""MPNet (Song et al. 2020, arXiv 2004.09297): BERT with a bias for each distance of two tokens, and its directories.

Positions are both absolute, in a table that starts at 2 as RoBERTa's does, and relative: all layers add the same biases
to their scores (nn/layers/plain_attention.py). There are no segments; WordPiece has RoBERTa's special tokens. Heads are
RoBERTa's (modeling_mpnet.py of transformers 5, where the padding id is always 1). Its own pretraining, masked and
permuted language modeling, is not implemented: it is pretrained with `masked_lm` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.families.body import TransformerSettings
from unmask.families.format import (
    BERT_CONFIG,
    BERT_TENSORS,
    DENSE_HEADS,
    ROBERTA_LM,
    TASK_HEADS,
    TEXTS,
    Family,
    Format,
    architectures,
    in_layers,
    without_pooler,
)
from unmask.nn.encoders.encoder import NARROW_BLOCKS, HeadSpec
from unmask.nn.encoders.transformer import Transformer
from unmask.nn.layers.block import Block, SelfAttention
from unmask.nn.layers.embeddings import DistanceEmbeddings
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.plain_attention import BUCKETS, AttentionSpec, DistanceBias
from unmask.nn.layers.pooler import Pooler

OFFSET = 2
"""Number of unused rows at the start of the table of positions."""


class MpnetSettings(TransformerSettings, frozen=True, kw_only=True, tag="mpnet"):
    """The recipe's [encoder] for `kind = "mpnet"`; see `TransformerSettings`.

    Attributes:
        feed_forward: inner width of the feed-forward layers.
        epsilon: epsilon of the LayerNorms.
    """

    feed_forward: int
    epsilon: float = 1e-5

    capabilities = TransformerSettings.capabilities - {NARROW_BLOCKS}

    @property
    def head(self) -> HeadSpec:
        """See `TransformerSettings`."""
        return replace(super().head, lm_activation="gelu", pooler_dropout=self.before_last)

    def build(self, vocabulary: int) -> Transformer:
        """See `BodySettings`."""
        distances = DistanceBias(self.heads)
        embeddings = DistanceEmbeddings(
            vocabulary,
            self.positions,
            0,
            self.width,
            None,
            offset=OFFSET,
            dropout=self.dropout,
            epsilon=self.epsilon,
            distances=distances,
        )
        blocks = [self._layer(distances) for _ in range(self.layers)]
        return self.compose(vocabulary, embeddings, blocks, Pooler(self.width, "tanh"))

    def _layer(self, distances: DistanceBias) -> Block:
        attention = SelfAttention(self.width, AttentionSpec(self.heads, self.dropout, bias=distances.bias))
        norm = LayerNorm(self.width, self.epsilon)
        return Block(attention, norm, *self.feed_forward_parts(self.sizes), self.dropout)

    def mismatch(self, pad: int) -> str:
        """See `BodySettings`: as transformers does, it takes the token with id 1 for padding."""
        return "" if pad == OFFSET - 1 else "kind=bert"


def read_distances(config: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of positions.

    Raises:
        TypeError: the number of buckets is one with which transformers does not compute.
    """
    if config.get("relative_attention_num_buckets", BUCKETS) != BUCKETS:
        raise TypeError(f"relative_attention_num_buckets must be {BUCKETS}")
    return {"positions": table.get("positions", 512) - OFFSET}


def write_distances(settings: MpnetSettings) -> dict[str, Any]:
    """Return the keys of config.json for the positions."""
    return {"max_position_embeddings": OFFSET + settings.positions, "pad_token_id": OFFSET - 1}


MPNET = Family(
    MpnetSettings,
    Format(
        model_type="mpnet",
        prefix="mpnet.",
        config={name: key for name, key in BERT_CONFIG.items() if name != "segments"},
        defaults={"layer_norm_eps": 1e-12},
        always={"relative_attention_num_buckets": BUCKETS},
        tensors={
            **BERT_TENSORS,
            "embeddings.distances.weight": "encoder.relative_attention_bias.weight",
            **in_layers(
                "encoder.layer.{}",
                {
                    "attention.qkv": ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
                    "attention.out": "attention.attn.o",
                    "attention_norm": "attention.LayerNorm",
                },
            ),
        },
        pooler="pooler.dense",
        head_pooler="classifier.dense",
        pooled=TEXTS,
        heads={"masked_lm": ROBERTA_LM, **TASK_HEADS, **DENSE_HEADS},
        decoder="lm_head.decoder.weight",
        architectures=architectures("MPNet"),
        without_pooler=without_pooler("MPNet"),
        read=read_distances,
        write=write_distances,
    ),
)
