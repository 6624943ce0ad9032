"""Ideas of papers, one a file. A new one: its file, a line here, a recipe, a test."""

from collections.abc import Mapping

from torch import Tensor

from unmask.errors import UserError
from unmask.objectives.causal_lm import CausalLMSettings
from unmask.objectives.masked_lm import MaskedLMSettings
from unmask.objectives.next_sentence import NextSentenceSettings
from unmask.objectives.replaced_token import ReplacedTokenSettings
from unmask.objectives.sentence_order import SentenceOrderSettings
from unmask.objectives.span_boundary import SpanBoundarySettings

Settings = (
    MaskedLMSettings
    | CausalLMSettings
    | NextSentenceSettings
    | SentenceOrderSettings
    | SpanBoundarySettings
    | ReplacedTokenSettings
)
OBJECTIVES: dict[str, type[Settings]] = {
    "masked_lm": MaskedLMSettings,
    "causal_lm": CausalLMSettings,
    "next_sentence": NextSentenceSettings,
    "sentence_order": SentenceOrderSettings,
    "span_boundary": SpanBoundarySettings,
    "replaced_token": ReplacedTokenSettings,
}
"""[objective.NAME] of a recipe to its settings, whose `build` gives the objective."""


def settings_of(name: str, head: Mapping[str, Tensor], width: int) -> Settings:
    """Return the settings of an objective whose head has these tensors.

    Args:
        name: of the objective.
        head: its tensors by part.
        width: of the encoder.

    Raises:
        UserError: they are not such a head's.
    """
    try:
        if name == "replaced_token" and "generator.dense.weight" in head:
            return ReplacedTokenSettings(generator_size=head["generator.dense.weight"].shape[-1] / width)
        if name == "span_boundary" and "places.weight" in head:
            places, place_width = head["places.weight"].shape
            return SpanBoundarySettings(places=places, place_width=place_width)
    except ValueError as error:
        raise UserError(f"the tensors of the {name} head are damaged ({error})") from error
    return OBJECTIVES[name]()
