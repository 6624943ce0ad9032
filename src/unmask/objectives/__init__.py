"""Ideas of papers, one a file. A new one: its file, a line here, a recipe, a test."""

from unmask.objectives.masked_lm import MaskedLMSettings
from unmask.objectives.next_sentence import NextSentenceSettings

OBJECTIVES: dict[str, type[MaskedLMSettings] | type[NextSentenceSettings]] = {
    "masked_lm": MaskedLMSettings,
    "next_sentence": NextSentenceSettings,
}
"""[objective.NAME] of a recipe to its settings, whose `build` gives the objective."""
