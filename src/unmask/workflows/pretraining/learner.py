"""Construction of the learner for pretraining: an encoder, new or from a model, with the recipe's objectives."""

from __future__ import annotations

import torch

from unmask.data.batches.rng import derive_seed
from unmask.model.model import Model, build_encoder
from unmask.objectives.learner import Learner
from unmask.objectives.objective import BuildContext, Objective
from unmask.objectives.teacher import TEACHER, Teacher
from unmask.recipes.recipe import Recipe


def build_learner(
    recipe: Recipe, vocabulary: int, base: Model | None, teacher: Teacher | None = None
) -> tuple[Learner, list[str]]:
    """Return encoder and objectives, and the names of the parts newly initialized because `base` lacks them.

    Args:
        recipe: encoder, and objectives of all stages.
        vocabulary: number of token ids.
        base: model to continue from; None: all weights are initialized at random.
        teacher: what objectives learn from; without one, such objectives are left out (see `check_teacher`).

    Raises:
        UserError: a head of `base` is damaged, or its shapes differ from the recipe's.
    """
    encoder = build_encoder(recipe.encoder, vocabulary, seed=recipe.seed) if base is None else base.encoder
    torch.manual_seed(derive_seed(recipe.seed, "heads"))
    objectives: dict[str, Objective] = {}
    context = BuildContext(encoder, teacher, vocabulary, objectives)
    taught = {name for name, settings in recipe.all_objectives.items() if TEACHER in settings.asks}
    for name, settings in recipe.all_objectives.items():
        if teacher is not None or name not in taught:
            objectives[name] = settings.build(context)
    if base is None:
        return Learner(encoder, objectives), []
    lacking = [what for name, one in objectives.items() if name not in taught for what in base.take(name, one)]
    return Learner(encoder, objectives), [*base.created, *lacking]
