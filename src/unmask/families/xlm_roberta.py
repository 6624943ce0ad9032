"""XLM-RoBERTa (Conneau et al. 2020): RoBERTa's body over a unigram vocabulary of 100 languages; its directories.

XLM-R, mE5 and the multilingual rerankers of this family have its `model_type` (modeling_xlm_roberta.py of transformers
5). Its vocabulary has RoBERTa's special tokens (data/tokenizers/unigram.py).
"""

from __future__ import annotations

from dataclasses import replace

from unmask.families.format import Family, Format, architectures, without_pooler
from unmask.families.roberta import ROBERTA, RobertaSettings


class XlmRobertaSettings(RobertaSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="xlm_roberta"):
    """The recipe's [encoder] for `kind = "xlm_roberta"`; see `RobertaSettings`."""


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
