"""From a recipe to the curriculum of its run.

Input: a recipe, the corpus's tokenizer, and the learner, whose objectives prepare samples. Output: the pipelines of the
stages, and what distinguishes each stage, in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from unmask.data.batches.curriculum import Curriculum
from unmask.data.batches.feed import Feed
from unmask.data.batches.stages import Stage
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.objectives.learner import Learner
from unmask.recipes.recipe import Recipe
from unmask.support.settings import flatten

SHOWN = {"layout.kind", "layout.length", "masking.kind", "masking.rate", "masking.final_rate"}
"""Settings that are described by words of their own."""


def build_curriculum(recipe: Recipe, tokenizer: Tokenizer, learner: Learner) -> Curriculum:
    """Return the pipelines of all stages of a recipe; each counts the targets of its own objectives alone."""
    stages, whole = recipe.every_stage, recipe.all_objectives
    return Curriculum(
        stages=[
            Stage(
                share=share,
                length=stage.layout.length,
                name=name,
                weights={key: one.weight for key, one in stage.objectives.items() if one.weight != whole[key].weight},
            )
            for share, stage, name in zip(recipe.shares, stages, describe(stages), strict=True)
        ],
        feeds=[
            Feed(
                stage.layout,
                stage.masking,
                recipe.seed,
                tokenizer,
                partial(learner.prepare, objectives=tuple(stage.objectives)),
                recipe.encoder.pretraining,
            )
            for stage in stages
        ],
    )


def describe(stages: Sequence[Recipe]) -> list[str]:
    """Return what distinguishes each stage: "length 64, layout document_sentences, objectives masked_lm"."""
    found = [_settings(stage) for stage in stages]
    keys = dict.fromkeys(key for one in found for key in one)
    differing = [key for key in keys if len({one[key] for one in found if key in one}) > 1]
    texts = [", ".join(f"{key} {one[key]}" for key in differing if one.get(key)) for one in found]
    return [text or f"length {stage.layout.length}" for text, stage in zip(texts, stages, strict=True)]


def _settings(stage: Recipe) -> dict[str, str]:
    """Return the settings of a stage by their names in descriptions."""
    layout, objectives = stage.layout, stage.objectives
    masking: Any = stage.masking
    found = {
        "length": str(layout.length),
        "layout": _kind(layout),
        "masking": _kind(masking),
        "objectives": " and ".join(objectives),
    }
    if rate := getattr(masking, "rate", None):
        found["masking rate"] = f"{rate:g}" if masking.final_rate is None else f"{rate:g} to {masking.final_rate:g}"
    own: dict[str, Any] = {"layout": layout, "masking": masking, "objective": objectives}
    more = flatten(msgspec.to_builtins(own))
    return found | {key: str(value) for key, value in more.items() if key not in SHOWN and value is not None}


def _kind(settings: msgspec.Struct) -> str:
    return str(settings.__struct_config__.tag)
