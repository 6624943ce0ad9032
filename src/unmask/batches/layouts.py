"""Ways to cut samples from documents, one a file. A new one: its file, a line here, a test."""

from typing import TYPE_CHECKING, TypeAlias, Union

from unmask.batches.contiguous import ContiguousSettings
from unmask.batches.document_sentences import DocumentSentencesSettings
from unmask.batches.full_sentences import FullSentencesSettings
from unmask.batches.layout import LayoutSettings
from unmask.batches.sentence_pairs import SentencePairsSettings
from unmask.batches.single import SingleSettings
from unmask.plugins import Table

LAYOUTS: Table[type[LayoutSettings]] = Table(
    "unmask.layouts",
    {
        "single": SingleSettings,
        "document_sentences": DocumentSentencesSettings,
        "full_sentences": FullSentencesSettings,
        "sentence_pairs": SentencePairsSettings,
        "contiguous": ContiguousSettings,
    },
)
"""By `kind` in [layout]."""

if TYPE_CHECKING:
    AnyLayout: TypeAlias = LayoutSettings
else:
    AnyLayout = Union[tuple(LAYOUTS.values())]  # noqa: UP007 (as many as there are)
"""What [layout] of a recipe may be."""
