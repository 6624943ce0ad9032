"""Checks of a fine-tuning recipe: settings without effect, and what the model does not support."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unmask.data.batches.masking import WHOLE_TEXT
from unmask.data.labelled.negatives import COLUMN
from unmask.model.model import Model
from unmask.nn.encoders.downstream import DownstreamSettings, resolve_layers
from unmask.nn.encoders.encoder import Encoder
from unmask.objectives.teacher import TEACHER, Teacher
from unmask.recipes.recipe import FinetuningRecipe
from unmask.recipes.requirements import describe
from unmask.support.errors import UserError
from unmask.support.messages import argument, call, setting
from unmask.tasks.rows import TextTask
from unmask.tasks.task import Task
from unmask.training.settings import BatchSettings


def check_step(batch: BatchSettings, task: Task, examples: Sequence[Any]) -> None:
    """Raise an error if steps are of a single example, and nothing is learned from one alone."""
    if batch.sequences == 1 and task.needs_others(examples):
        raise UserError(
            f"with {setting('batch.sequences', 1)} no text is a negative for another one, so that nothing is learned",
            remedy=f"pass 2 or more, or give negatives ({COLUMN})",
        )


def check_effects(recipe: FinetuningRecipe, body: Encoder, teacher: Teacher | None = None) -> None:
    """Raise an error for settings without effect, and for objectives that the model does not support."""
    if recipe.frozen:
        recipe.task.check("frozen")
    if recipe.probe and not recipe.task.training.probe:
        raise UserError(
            f"probe fits heads that classify texts, not that of {recipe.task.title}",
            remedy="remove it",
        )
    if recipe.probe and recipe.budget.epochs == 0:
        _check_probed(recipe.task)
    if recipe.downstream is not None:
        recipe.task.check("downstream")
    for name, settings in recipe.objectives.items():
        if recipe.task.grouped:
            title, windows = recipe.task.title, recipe.task.grouped == "windows"
            instead = f" or {setting('task.windows', 1)} and {setting('task.stride', 0)}" if windows else ""
            raise UserError(
                f"objective.{name} does not work with {title}, whose examples are groups of {recipe.task.grouped}",
                remedy=f"pass {setting(f'objective.{name}', False)}{instead}",
            )
        if recipe.frozen or recipe.downstream is not None:
            raise UserError(
                f"objective.{name} goes with neither a frozen encoder nor a downstream model", remedy="remove it"
            )
        if teacher is None and TEACHER in settings.requires:
            raise UserError(
                f"objective.{name} learns from a teacher",
                remedy=f"use it with {call('distill', 'RECIPE', teacher='MODEL')}",
            )
        if missing := sorted(settings.requires - body.provides - {WHOLE_TEXT, TEACHER}):
            raise UserError(
                f"objective.{name} needs {describe(missing[0])}, which neither this model nor labeled examples provide",
                remedy="remove it",
            )
    of_training = {
        "optimizer.layer_decay": recipe.optimizer.layer_decay != 1,
        "reset": recipe.reset is not None,
        "batch.recompute": recipe.batch.recompute,
    }
    for name, is_set in of_training.items():
        if recipe.frozen and is_set:
            raise UserError(f"{name} has no effect on a frozen encoder", remedy="remove it")
    if not recipe.frozen and recipe.downstream is not None and recipe.downstream.plain(body.num_layers):
        raise UserError(
            f"{argument('downstream', 'linear')} has no effect without {argument('frozen')}: it is the default "
            "of fine-tuning",
            remedy=f"pass {argument('frozen', True)}, or remove it",
        )


def check_downstream(chosen: DownstreamSettings, layers: int, part: str, at: str) -> None:
    """Raise an error if a small model does not give what a head reads.

    Args:
        chosen: settings of the small model.
        layers: number of layers of the encoder.
        part: name of the head.
        at: positions that it reads.
    """
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


def check_difference(base: Model, task: Task) -> None:
    """Raise an error if there are no pairs whose texts could be subtracted."""
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


def _check_probed(task: Task) -> None:
    """Raise an error for settings that the logistic regression ignores, if it is the whole training."""
    for name in task.training.unprobed:
        if getattr(task, name) != getattr(type(task)(), name):
            raise UserError(
                f"task.{name} has no effect on a logistic regression",
                remedy=f"remove it, or train with {setting('budget.epochs', 10)} or {argument('frozen', False)}",
            )
