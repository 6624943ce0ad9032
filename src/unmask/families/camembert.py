"""CamemBERT (Martin et al. 2020): RoBERTa's body over a French unigram vocabulary; its directories.

The names of tensors are RoBERTa's (modeling_camembert.py of transformers 5), and its vocabulary has RoBERTa's special
tokens (data/tokenizers/unigram.py).
"""

from __future__ import annotations

from unmask.families.format import Family
from unmask.families.roberta import RobertaSettings
from unmask.families.xlm_roberta import format_like_roberta


class CamembertSettings(RobertaSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="camembert"):
    """The recipe's [encoder] for `kind = "camembert"`; see `RobertaSettings`."""


CAMEMBERT = Family(CamembertSettings, format_like_roberta("camembert", "Camembert"))
