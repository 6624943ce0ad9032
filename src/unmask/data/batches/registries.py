"""Registries of layouts, which cut samples from documents, and of maskings, which choose the masked tokens.

To add one: its own file, a line here, a test.
"""

from typing import TYPE_CHECKING, TypeAlias, Union

from msgspec import Struct

from unmask.data.batches.layout import DocumentSentencesSettings, FullSentencesSettings, LayoutSettings, SingleSettings
from unmask.data.batches.masking import MaskingSettings, NoMaskingSettings, TokenMaskingSettings
from unmask.data.batches.paired_streams import PairedStreamsSettings, SentenceStreamsSettings
from unmask.data.batches.permutation_masking import PermutationMaskingSettings
from unmask.data.batches.sentence_pairs import SentencePairsSettings
from unmask.data.batches.span_masking import NgramMaskingSettings, SpanMaskingSettings, WholeWordMaskingSettings
from unmask.data.batches.streams import ContiguousSettings
from unmask.support.plugins import Registry

LAYOUTS: Registry[type[LayoutSettings]] = Registry(
    "unmask.layouts",
    {
        "single": SingleSettings,
        "document_sentences": DocumentSentencesSettings,
        "full_sentences": FullSentencesSettings,
        "sentence_pairs": SentencePairsSettings,
        "contiguous": ContiguousSettings,
        "sentence_streams": SentenceStreamsSettings,
        "paired_streams": PairedStreamsSettings,
    },
    LayoutSettings,
)
"""Settings classes by `kind` in [layout]."""

if TYPE_CHECKING:
    AnyLayout: TypeAlias = LayoutSettings
else:
    AnyLayout = Union[tuple(LAYOUTS.values())]  # noqa: UP007 (number of members known only at run time)
"""Type of [layout] in a recipe."""

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
    Struct,
)
"""Settings classes by `kind` in [masking]."""

if TYPE_CHECKING:
    AnyMasking: TypeAlias = MaskingSettings | NoMaskingSettings
else:
    AnyMasking = Union[tuple(MASKINGS.values())]  # noqa: UP007 (number of members known only at run time)
"""Type of [masking] in a recipe."""
