"""Model families, one file each: settings, body, checkpoint format. A new one needs a line here, a recipe, a test."""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias

from unmask.families.albert import ALBERT
from unmask.families.bert import BERT
from unmask.families.body import BodySettings
from unmask.families.deberta import DEBERTA
from unmask.families.distilbert import DISTILBERT
from unmask.families.electra import ELECTRA
from unmask.families.elmo import ELMO
from unmask.families.eurobert import EUROBERT
from unmask.families.format import Family
from unmask.families.gpt import GPT
from unmask.families.modernbert import MODERNBERT
from unmask.families.mpnet import MPNET
from unmask.families.neobert import NEOBERT
from unmask.families.nomicbert import NOMICBERT
from unmask.families.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from unmask.families.roformer import ROFORMER
from unmask.families.xlnet import XLNET
from unmask.support.plugins import Registry

FAMILIES: Registry[Family] = Registry(
    "unmask.families",
    {
        family.kind: family
        for family in (
            *(BERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, ALBERT, ELECTRA, DISTILBERT, GPT, ROFORMER, MODERNBERT),
            *(MPNET, DEBERTA, NOMICBERT, EUROBERT, NEOBERT, ELMO, XLNET),
        )
    },
    Family,
)
"""Families by their `kind` in [encoder]."""

if TYPE_CHECKING:
    AnyBody: TypeAlias = BodySettings


def __getattr__(name: str) -> Any:
    """Return `AnyBody`, the union of all settings allowed in [encoder]; built on access, as it imports all families."""
    if name != "AnyBody":
        raise AttributeError(f"module 'unmask.families' has no attribute '{name}'")
    return reduce(or_, (family.settings for family in FAMILIES.values()))


def family_of(settings: BodySettings) -> Family:
    """Return the family to which the settings belong."""
    return FAMILIES[str(settings.__struct_config__.tag)]


__all__ = ["FAMILIES", "AnyBody", "BodySettings", "Family", "family_of"]
