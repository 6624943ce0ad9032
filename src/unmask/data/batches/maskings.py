"""Registry of maskings, which choose the masked tokens. To add one: its own file, a line here, a test."""

from typing import TYPE_CHECKING, TypeAlias, Union

from unmask.data.batches.masking import MaskingSettings, NoMaskingSettings, TokenMaskingSettings
from unmask.data.batches.permutation_masking import PermutationMaskingSettings
from unmask.data.batches.span_masking import NgramMaskingSettings, SpanMaskingSettings, WholeWordMaskingSettings
from unmask.support.plugins import Registry

MASKINGS: Registry[type[MaskingSettings] | type[NoMaskingSettings]] = Registry(
    "unmask.maskings",
    {
        "token": TokenMaskingSettings,
        "whole_word": WholeWordMaskingSettings,
        "ngram": NgramMaskingSettings,
        "span": SpanMaskingSettings,
        "permutation": PermutationMaskingSettings,
        "none": NoMaskingSettings,
    },
)
"""Settings classes by `kind` in [masking]."""

if TYPE_CHECKING:
    AnyMasking: TypeAlias = MaskingSettings | NoMaskingSettings
else:
    AnyMasking = Union[tuple(MASKINGS.values())]  # noqa: UP007 (number of members known only at run time)
"""Type of [masking] in a recipe."""
