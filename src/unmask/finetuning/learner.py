"""The learner of a fine-tuning: a model's body, a downstream model if one is asked for, the task's head."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from unmask.batches.chance import number
from unmask.encoders.downstream import Downstream, DownstreamSettings, number_layers
from unmask.encoders.transformer import TransformerSettings, initialise
from unmask.errors import UserError
from unmask.model import Model
from unmask.objectives.causal_lm import CausalLM
from unmask.objectives.learner import Learner
from unmask.objectives.objective import Objective
from unmask.recipe import FinetuningRecipe
from unmask.tasks.task import Task


def build_learner(base: Model, labels: Sequence[str], recipe: FinetuningRecipe) -> tuple[Learner, bool]:
    """Return encoder and head, and whether the head is the model's own (it had one for the same labels).

    What the recipe resets is drawn anew, in place.

    Raises:
        UserError: the downstream model and the task, or the encoder, do not go together.
    """
    if recipe.reset is not None:
        _reset(base, recipe.reset, recipe.seed)
    torch.manual_seed(number(recipe.seed, "heads"))
    shape, chosen = base.encoder.settings, recipe.downstream
    if chosen is not None and chosen.plain(shape.layers):
        chosen = None
    body = base.encoder if chosen is None else Downstream(chosen, base.encoder, shape)
    head = recipe.task.build(body.settings, labels)
    if chosen is not None:
        _check_downstream(chosen, shape, recipe.task.part, head.at)
    kept = tuple(base.labels) == tuple(labels) and base.downstream == chosen and base.take(recipe.task.part, head)
    if kept and isinstance(body, Downstream):
        body.load_own(base.heads["downstream"])
    objectives: dict[str, Objective] = {recipe.task.part: head}
    if recipe.lm_weight:
        objectives["causal_lm"] = CausalLM(recipe.lm_weight)
    return Learner(body, objectives), kept


def _check_downstream(chosen: DownstreamSettings, shape: TransformerSettings, part: str, at: str) -> None:
    if chosen.kind == "average" and at != "summary":
        raise UserError(
            f"--downstream average is one vector a text, {part.replace('_', ' ')} needs one a token",
            remedy="take linear or rnn",
        )
    if chosen.kind == "linear" and at == "summary" and number_layers(chosen.layers, shape.layers) == (0,):
        raise UserError("layer 0 of [CLS] is the same for every text", remedy="take --downstream average or rnn")


def finished_model(base: Model, learner: Learner, labels: Sequence[str], task: Task) -> Model:
    """Return what is saved and used of a trained learner: encoder, downstream model if any, head."""
    heads, small = {task.part: learner.parts[task.part].published()}, None
    if isinstance(learner.encoder, Downstream):
        small, heads["downstream"] = learner.encoder.chosen, learner.encoder.own_state()
    return Model(base.encoder, base.tokenizer, heads, tuple(labels), task, downstream=small)


def _reset(base: Model, layers: int, seed: int) -> None:
    """Draw the pooler and the uppermost layers anew."""
    shape = base.encoder.settings
    if layers and shape.shared != "none":
        raise UserError(
            f"reset = {layers} would draw lower layers anew too: this model's share their weights",
            remedy="pass --set reset=0, which draws the pooler alone",
        )
    if layers > shape.layers:
        raise UserError(f"reset = {layers}, but the model has {shape.layers} layers")
    if not layers and base.encoder.pooler is None:
        raise UserError("reset = 0 draws the pooler anew, but the model has none", remedy="leave it away")
    torch.manual_seed(number(seed, "reset"))
    upper = base.encoder.blocks[len(base.encoder.blocks) - layers :]
    for part in filter(None, (base.encoder.pooler, *upper)):
        initialise(part, shape)
