"""The learner of a pretraining: a body, drawn anew or a model's, and the recipe's objectives."""

from __future__ import annotations

from dataclasses import replace

import torch

from unmask.batches.chance import number
from unmask.model import Model, build_encoder
from unmask.objectives.learner import Learner
from unmask.objectives.objective import Objective
from unmask.objectives.replaced_token import ReplacedToken
from unmask.recipe import Recipe


def build_learner(recipe: Recipe, vocabulary: int, base: Model | None) -> tuple[Learner, list[str]]:
    """Return encoder and objectives, and what had to be created because `base` lacks it.

    Raises:
        UserError: a head of `base` is damaged, or its shapes are not those of the recipe's.
    """
    encoder = build_encoder(recipe.encoder, vocabulary, seed=recipe.seed) if base is None else base.encoder
    torch.manual_seed(number(recipe.seed, "heads"))
    objectives = {
        name: settings.build(encoder.settings, encoder.vocabulary) for name, settings in recipe.objectives.items()
    }
    if base is None:
        return Learner(encoder, objectives), []
    lacking = [text for name, objective in objectives.items() if (text := _adopt(base, name, objective))]
    return Learner(encoder, objectives), [*base.created, *lacking]


def _adopt(base: Model, name: str, objective: Objective) -> str:
    """Put a model's head into an objective; return what it lacks: of a published ELECTRA only the generator."""
    if base.take(name, objective):
        return ""
    if not isinstance(objective, ReplacedToken) or name not in base.heads:
        return f"the {name} head"
    fresh = {f"generator.{part}": value for part, value in objective.generator.state_dict().items()}
    whole = replace(base, heads={name: {**fresh, **base.heads[name]}})
    whole.take(name, objective)
    return "the generator"
