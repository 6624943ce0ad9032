"""Ideas of papers, one a file. A new one: its file, a line here, a recipe, a test."""

from unmask.objectives.masked_lm import MaskedLMSettings
from unmask.objectives.next_sentence import NextSentenceSettings
from unmask.objectives.sentence_order import SentenceOrderSettings
from unmask.objectives.span_boundary import SpanBoundarySettings

OBJECTIVES: dict[
    str, type[MaskedLMSettings] | type[NextSentenceSettings] | type[SentenceOrderSettings] | type[SpanBoundarySettings]
] = {
    "masked_lm": MaskedLMSettings,
    "next_sentence": NextSentenceSettings,
    "sentence_order": SentenceOrderSettings,
    "span_boundary": SpanBoundarySettings,
}
"""[objective.NAME] of a recipe to its settings, whose `build` gives the objective."""
