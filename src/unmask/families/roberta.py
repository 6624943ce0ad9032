"""RoBERTa (Liu et al. 2019, arXiv 1907.11692), XLM-RoBERTa, CamemBERT: BERT with offset positions; their directories.

The first position is the padding id plus one (fairseq: 2), and the table of positions has as many additional rows.
Sequence-level heads have a dense layer of their own with tanh, like BERT's pooler, preceded by dropout too.
The masked-LM head always uses GELU, as in transformers (modeling_roberta.py of transformers 5).

XLM-RoBERTa (Conneau et al. 2020) is RoBERTa's body over a unigram vocabulary of 100 languages. XLM-R, mE5 and the
multilingual rerankers of this family have its `model_type` (modeling_xlm_roberta.py). CamemBERT (Martin et al. 2020) is
the same over a French unigram vocabulary; its names of tensors are RoBERTa's (modeling_camembert.py). Both vocabularies
have RoBERTa's special tokens (data/tokenizers/unigram.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.families.bert import BertSettings
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
    without_pooler,
)
from unmask.nn.encoders.encoder import HeadSpec
from unmask.nn.encoders.transformer import Transformer
from unmask.nn.layers.pooler import Pooler


class RobertaSettings(BertSettings, frozen=True, kw_only=True, tag="roberta"):
    """The recipe's [encoder] for `kind = "roberta"`; see `BertSettings`.

    Attributes:
        offset: unused rows at the start of the table of positions: the padding id plus one.
    """

    segments: int = 1
    epsilon: float = 1e-5
    offset: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.offset < 1:
            raise ValueError("offset must be at least 1")

    @property
    def head(self) -> HeadSpec:
        """See `TransformerSettings`."""
        return replace(super().head, lm_activation="gelu", pooler_dropout=self.before_last)

    def build(self, vocabulary: int) -> Transformer:
        """See `BodySettings`."""
        embeddings = self.embeddings(vocabulary, offset=self.offset)
        return self.compose(vocabulary, embeddings, self.blocks(), Pooler(self.width, "tanh"))

    def mismatch(self, pad: int) -> str:
        """See `BodySettings`: the first position is the padding id plus one."""
        return "" if self.offset == pad + 1 else f"offset={pad + 1}"


def read_positions(config: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the offset and the number of positions.

    Raises:
        TypeError: the padding id is not an integer.
    """
    padding = config.get("pad_token_id", 1)
    if not isinstance(padding, int):
        raise TypeError("pad_token_id must be an integer, as positions start after it")
    offset = padding + 1
    return {"offset": offset, "positions": table.get("positions", 512 + offset) - offset}


def write_positions(settings: RobertaSettings) -> dict[str, Any]:
    """Return the keys of config.json for the offset and the number of positions."""
    return {"max_position_embeddings": settings.offset + settings.positions, "pad_token_id": settings.offset - 1}


ROBERTA = Family(
    RobertaSettings,
    Format(
        model_type="roberta",
        prefix="roberta.",
        config=BERT_CONFIG,
        defaults={"type_vocab_size": 2, "layer_norm_eps": 1e-12},
        tensors=BERT_TENSORS,
        pooler="pooler.dense",
        head_pooler="classifier.dense",
        pooled=TEXTS,
        heads={"masked_lm": ROBERTA_LM, **TASK_HEADS, **DENSE_HEADS},
        decoder="lm_head.decoder.weight",
        architectures=architectures("Roberta"),
        without_pooler=without_pooler("Roberta"),
        read=read_positions,
        write=write_positions,
    ),
)


class XlmRobertaSettings(RobertaSettings, frozen=True, kw_only=True, tag="xlm_roberta"):
    """The recipe's [encoder] for `kind = "xlm_roberta"`; see `RobertaSettings`.

    Conneau et al. 2020, arXiv 1911.02116.
    """


def format_like_roberta(model_type: str, name: str) -> Format:
    """Return RoBERTa's format under another name.

    Args:
        model_type: `model_type` in config.json.
        name: beginning of the names of the family's classes in transformers.
    """
    return replace(
        ROBERTA.format,
        model_type=model_type,
        architectures=architectures(name),
        without_pooler=without_pooler(name),
    )


XLM_ROBERTA = Family(XlmRobertaSettings, format_like_roberta("xlm-roberta", "XLMRoberta"))


class CamembertSettings(RobertaSettings, frozen=True, kw_only=True, tag="camembert"):
    """The recipe's [encoder] for `kind = "camembert"`; see `RobertaSettings`.

    Martin et al. 2020, arXiv 1911.03894.
    """


CAMEMBERT = Family(CamembertSettings, format_like_roberta("camembert", "Camembert"))
