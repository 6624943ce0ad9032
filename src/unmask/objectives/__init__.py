"""Training objectives, one file each. A new one needs a line here, a recipe, a test.

The table holds the location of each class, as that of tasks does: each objective imports bodies and layers, and most
modules need only names from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unmask.support.plugins import Registry

if TYPE_CHECKING:
    from unmask.objectives.objective import ObjectiveSettings

OBJECTIVES: Registry[type[ObjectiveSettings]] = Registry(
    "unmask.objectives",
    {
        "masked_lm": "unmask.objectives.masked_lm:MaskedLMSettings",
        "causal_lm": "unmask.objectives.causal_lm:CausalLMSettings",
        "next_sentence": "unmask.objectives.next_sentence:NextSentenceSettings",
        "sentence_order": "unmask.objectives.sentence_order:SentenceOrderSettings",
        "span_boundary": "unmask.objectives.span_boundary:SpanBoundarySettings",
        "replaced_token": "unmask.objectives.replaced_token:ReplacedTokenSettings",
        "bidirectional_lm": "unmask.objectives.bidirectional_lm:BidirectionalLMSettings",
        "permutation_lm": "unmask.objectives.permutation_lm:PermutationLMSettings",
        "soft_targets": "unmask.objectives.soft_targets:SoftTargetsSettings",
        "hidden_cosine": "unmask.objectives.hidden_cosine:HiddenCosineSettings",
        "layer_matching": "unmask.objectives.layer_matching:LayerMatchingSettings",
    },
    "unmask.objectives.objective:ObjectiveSettings",
)
"""Settings by the NAME of [objective.NAME] in recipes; their `build` returns the objective."""
