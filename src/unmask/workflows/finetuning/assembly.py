"""Learner of a fine-tuning run: the body of the model, the downstream model, if any, and the head of the task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch

from unmask.data.batches.rng import derive_seed
from unmask.families.checkpoints.check import check_size, on_meta
from unmask.model.model import Model
from unmask.nn.encoders.downstream import Downstream, DownstreamSettings, resolve_layers
from unmask.nn.encoders.encoder import POOLER, SEPARATE_LAYERS, WithPooler
from unmask.objectives.learner import Learner, loss_weights
from unmask.objectives.objective import BuildContext, Objective
from unmask.objectives.teacher import Teacher
from unmask.recipes.recipe import FinetuningRecipe
from unmask.support.errors import UserError
from unmask.support.messages import argument, setting
from unmask.tasks.rows import TextTask
from unmask.tasks.task import Task


def build_learner(
    base: Model, labels: Sequence[str], recipe: FinetuningRecipe, teacher: Teacher | None = None
) -> tuple[Learner, bool]:
    """Return the learner, and whether its head is that of the model (which then has the same labels).

    The layers that the recipe resets are reinitialized in place. Auxiliary objectives may learn from a teacher.

    Raises:
        UserError: the downstream model is incompatible with the task or the encoder.
    """
    if recipe.reset is not None:
        _reset(base, recipe.reset, recipe.seed)
    torch.manual_seed(derive_seed(recipe.seed, "heads"))
    layers, chosen = base.encoder.num_layers, recipe.downstream
    if chosen is not None and chosen.plain(layers):
        chosen = None
    if chosen is not None:
        check_size(lambda: Downstream(chosen, base.encoder), "a downstream model")
        with on_meta():
            at = recipe.task.build(Downstream(chosen, base.encoder).head, labels).at
        _check_downstream(chosen, layers, recipe.task.part, at)
        if chosen.kind == "difference":
            _check_difference(base, recipe.task)
    small = None if chosen is None else Downstream(chosen, base.encoder)
    body = base.encoder if small is None else small
    head = recipe.task.build(body.head, labels)
    reused = tuple(base.labels) == tuple(labels) and base.downstream == chosen and not base.take(recipe.task.part, head)
    if reused and small is not None:
        small.load_own(base.heads["downstream"])
    objectives: dict[str, Objective] = {recipe.task.part: head}
    context = BuildContext(body, teacher, base.tokenizer.size, objectives)
    for name, settings in recipe.objectives.items():
        objectives[name] = settings.build(context)
    return Learner(body, objectives, {recipe.task.part: 1.0, **loss_weights(recipe.objectives)}), reused


def _check_downstream(chosen: DownstreamSettings, layers: int, part: str, at: str) -> None:
    if chosen.kind in ("average", "difference") and at != "summary":
        raise UserError(
            f"{argument('downstream', chosen.kind)} yields one vector per text, but {part.replace('_', ' ')} "
            "needs one per token",
            remedy="use linear or rnn",
        )
    if chosen.kind == "linear" and at == "summary" and resolve_layers(chosen.layers, layers) == (0,):
        raise UserError(
            "layer 0 of [CLS] is the same for every text", remedy=f"use {argument('downstream', 'average')} or rnn"
        )


def _check_difference(base: Model, task: Task) -> None:
    remedy = f"use {argument('downstream', 'average')}"
    if not isinstance(task, TextTask) or not task.pairs:
        raise UserError(
            f"{argument('downstream', 'difference')} compares two texts, but these examples are not pairs",
            remedy=remedy,
        )
    if not base.marks_pairs:
        raise UserError(
            f"{argument('downstream', 'difference')} needs segment ids, by which this model does not tell the texts of "
            "a pair apart",
            remedy=remedy,
        )


def finished_model(base: Model, learner: Learner, labels: Sequence[str], task: Task) -> Model:
    """Return the model of a trained learner: the encoder, the downstream model, if any, and the head."""
    heads, small = {task.part: learner.parts[task.part].published()}, learner.encoder.chosen
    if small is not None:
        heads["downstream"] = learner.encoder.own_state()
    return Model(
        base.encoder,
        base.tokenizer,
        heads,
        tuple(labels),
        task,
        downstream=small,
        tokens=base.tokens,
        pooling=task.vectors,
    )


def _reset(base: Model, layers: int, seed: int) -> None:
    """Reinitialize the pooler and the topmost layers."""
    body = base.encoder
    if layers and SEPARATE_LAYERS not in body.provides:
        raise UserError(
            f"reset = {layers} would also reinitialize lower layers: the layers of this model share their weights",
            remedy=f"pass {setting('reset', 0)}, which reinitializes only the pooler",
        )
    if layers > body.num_layers:
        raise UserError(f"reset = {layers}, but the model has {body.num_layers} layers")
    pooler = cast(WithPooler, body).pooler if POOLER in body.provides else None
    if not layers and pooler is None:
        raise UserError("reset = 0 reinitializes the pooler, but the model has none", remedy="remove it")
    torch.manual_seed(derive_seed(seed, "reset"))
    for part in filter(None, (pooler, *body.layer_groups[len(body.layer_groups) - layers :])):
        body.head.init(part)
