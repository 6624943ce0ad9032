"""Training objectives, one file each. A new one needs a line here, a recipe, a test."""

from unmask.objectives.bidirectional_lm import BidirectionalLMSettings
from unmask.objectives.causal_lm import CausalLMSettings
from unmask.objectives.hidden_cosine import HiddenCosineSettings
from unmask.objectives.layer_matching import LayerMatchingSettings
from unmask.objectives.masked_lm import MaskedLMSettings
from unmask.objectives.next_sentence import NextSentenceSettings
from unmask.objectives.objective import ObjectiveSettings
from unmask.objectives.permutation_lm import PermutationLMSettings
from unmask.objectives.replaced_token import ReplacedTokenSettings
from unmask.objectives.sentence_order import SentenceOrderSettings
from unmask.objectives.soft_targets import SoftTargetsSettings
from unmask.objectives.span_boundary import SpanBoundarySettings
from unmask.support.plugins import Registry

OBJECTIVES: Registry[type[ObjectiveSettings]] = Registry(
    "unmask.objectives",
    {
        "masked_lm": MaskedLMSettings,
        "causal_lm": CausalLMSettings,
        "next_sentence": NextSentenceSettings,
        "sentence_order": SentenceOrderSettings,
        "span_boundary": SpanBoundarySettings,
        "replaced_token": ReplacedTokenSettings,
        "bidirectional_lm": BidirectionalLMSettings,
        "permutation_lm": PermutationLMSettings,
        "soft_targets": SoftTargetsSettings,
        "hidden_cosine": HiddenCosineSettings,
        "layer_matching": LayerMatchingSettings,
    },
)
"""Settings by the NAME of [objective.NAME] in recipes; their `build` returns the objective."""
