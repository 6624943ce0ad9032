"""BERT (Devlin et al. 2019, arXiv 1810.04805) and its checkpoint format (modeling_bert.py of transformers 5).

Post-norm layers, learned positions, LayerNorm epsilon 1e-12, weights from a normal distribution of standard deviation
0.02 truncated at two standard deviations (modeling.py of google-research/bert). GELU is exact, as in the paper and in
the first release (the reference code later switched to the tanh approximation: `activation = "gelu_tanh"`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from unmask.families.body import TransformerSettings, check_offsets, check_size
from unmask.families.format import (
    BERT_CONFIG,
    BERT_LM,
    BERT_TENSORS,
    TASK_HEADS,
    Family,
    Format,
    architectures,
)
from unmask.nn.encoders.encoder import Initializer
from unmask.nn.encoders.transformer import Transformer
from unmask.nn.layers.embeddings import Embeddings
from unmask.nn.layers.pooler import Pooler


class BertSettings(TransformerSettings, frozen=True, kw_only=True, tag="bert"):
    """The recipe's [encoder] for `kind = "bert"`; see `TransformerSettings`.

    Attributes:
        feed_forward: inner width of the feed-forward layers (4 H in the paper).
        segments: number of segment ids; with 1, only the separator marks the second text of a pair.
        epsilon: epsilon of the LayerNorms.
        initial_offsets: offsets of the tokens that the first heads of each layer attend to before training, such as
            (-1, 1) for the previous and the next token, which a small model otherwise takes long to discover.
    """

    feed_forward: int
    segments: int = 2
    epsilon: float = 1e-12
    initial_offsets: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_offsets(self.initial_offsets, self.heads)
        check_size("segments", self.segments)

    @property
    def init(self) -> Initializer:
        """See `TransformerSettings`."""
        return Initializer(self.init_std, offsets=self.initial_offsets)

    def embeddings(self, vocabulary: int, *, narrow: int | None = None, offset: int = 0) -> Embeddings:
        """Return the embeddings below the layers.

        Args:
            vocabulary: the number of token ids.
            narrow: width of the embeddings, which are then projected; None: the width of the layers.
            offset: number of unused rows at the start of the table of positions.
        """
        return Embeddings(
            vocabulary,
            self.positions if self.rotation is None else 0,
            self.segments,
            narrow or self.width,
            None if narrow is None else self.width,
            offset=offset,
            dropout=self.dropout,
            epsilon=self.epsilon,
        )

    def build(self, vocabulary: int) -> Transformer:
        """See `BodySettings`."""
        return self.compose(vocabulary, self.embeddings(vocabulary), self.blocks(), Pooler(self.width, "tanh"))


class NarrowBertSettings(BertSettings, frozen=True, kw_only=True):
    """Settings of bodies whose embeddings may be narrower than their layers; see `BertSettings`.

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


def read_embedding(config: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the width of the embeddings, or None if it equals that of the layers."""
    width = table.get("embedding")
    return {"embedding": None if width == table.get("width") else width}


def write_embedding(settings: NarrowBertSettings) -> dict[str, Any]:
    """Return the key of config.json for the width of the embeddings."""
    return {"embedding_size": settings.embedding or settings.width}


NARROW_CONFIG = {**BERT_CONFIG, "embedding": "embedding_size"}
"""Keys of config.json by settings."""


BERT = Family(
    BertSettings,
    Format(
        model_type="bert",
        prefix="bert.",
        config=BERT_CONFIG,
        tensors=BERT_TENSORS,
        pooler="pooler.dense",
        heads={
            "masked_lm": BERT_LM,
            "next_sentence": {"out": "cls.seq_relationship"},
            **TASK_HEADS,
        },
        decoder="cls.predictions.decoder.weight",
        architectures=architectures("Bert", masked_lm__next_sentence="ForPreTraining"),
        without_pooler=("BertForTokenClassification", "BertForQuestionAnswering"),
    ),
)
