"""All that a fine-tuning needs before its run is opened: model, resolved recipe, examples as samples.

What a user did wrong with files, settings and model is found here, before a run directory is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from unmask.batches.no_masking import WHOLE_TEXT
from unmask.encoders.encoder import Encoder
from unmask.errors import UserError
from unmask.finetuning.examples import Examples, frame_examples, read_examples
from unmask.finetuning.job import Job
from unmask.finetuning.learner import build_learner
from unmask.finetuning.rule import defaults
from unmask.migration import refuse_old_settings
from unmask.model import Model, load_model
from unmask.objectives.learner import Learner
from unmask.recipe import FinetuningRecipe
from unmask.requirements import describe
from unmask.runs.display import Display
from unmask.settings import convert, put
from unmask.tasks import TASKS
from unmask.tasks.task import Framed
from unmask.training.machine import Machine


@dataclass(frozen=True)
class Prepared:
    """See the module.

    Attributes:
        base: the model that is fine-tuned.
        recipe: every setting resolved.
        data: the examples to learn from, and those that are reported on.
        learnt: the same, less a tenth where the run chooses by it when to end, or a setting of the task.
        learner: encoder and head, on the device.
        kept: whether the head is the model's own.
        train, held: samples to train on, and to evaluate on along the way.
        inputs: fingerprints of model and examples.
    """

    base: Model
    recipe: FinetuningRecipe
    data: Examples
    learnt: Examples
    learner: Learner
    kept: bool
    train: Framed
    held: Framed
    inputs: dict[str, str]

    @property
    def stops_early(self) -> bool:
        """Whether the evaluations along the way decide when the run ends."""
        return self.recipe.budget.patience is not None


def prepare(job: Job, machine: Machine, display: Display, *, choosing: bool) -> Prepared:
    """Read model and examples, resolve the settings, and frame the examples.

    Args:
        job: what is asked for.
        machine: where the learner goes.
        display: tells what the files' formats leave out.
        choosing: score on a tenth of what is left to train on, and leave the dev examples alone.

    Raises:
        UserError: files, model and settings do not go together.
    """
    base = _load(job)
    unsettled = TASKS[job.task]()
    read = read_examples(unsettled, job.files, base)
    for note in read.notes:
        display.say(note)
    data = read.inner(unsettled) if choosing else read
    recipe = _resolve(job, base, data)
    task = recipe.task
    learner, kept = build_learner(base, data.labels, recipe)
    learner.to(machine.device)
    stops_early = recipe.budget.patience is not None
    # what ends a run early, or finds a setting, is neither trained on nor reported
    learnt = data.inner(task) if stops_early or task.tunes else data
    train = frame_examples(task, base, learnt.train, data.labels, "learnt from these examples")
    scored = (learnt if stops_early else data).held
    held = frame_examples(task, base, scored, data.labels, "scored on the examples held out")
    if job.files.dev and (choosing or stops_early):  # scored at the end, or by another run: now is the time to refuse
        task.frame(base.tokenizer, read.held, data.labels, gold=True)
    inputs = {"model": base.fingerprint(), **data.fingerprints()}
    return Prepared(base, recipe, data, learnt, learner, kept, train, held, inputs)


class _Early(msgspec.Struct, frozen=True):
    """What is needed before the model is there, whose width and data decide the other defaults."""

    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None


def _load(job: Job) -> Model:
    given = {key: value for key, value in job.settings.items() if key in ("seed", "dropout")}
    early, start = convert(put({}, given, _Early), _Early, "--set"), job.start
    return load_model(
        start.model,
        tokenizer=start.tokenizer,
        allow_pickle=start.allow_pickle,
        dropout=early.dropout,
        seed=early.seed,
    )


def _resolve(job: Job, base: Model, data: Examples) -> FinetuningRecipe:
    """Return the recipe: the rule with the user's settings, then what the training examples decide."""
    rule = defaults(
        job.task,
        base.encoder.settings,
        len(data.train),
        pretrained=job.start.pretrained,
        frozen=job.frozen,
        downstream=job.downstream,
    )
    refuse_old_settings(job.settings)
    recipe = convert(put(rule, job.settings, FinetuningRecipe), FinetuningRecipe, "--set")
    if recipe.task.length > base.encoder.longest:
        raise UserError(f"length {recipe.task.length} exceeds the {base.encoder.longest} positions of the model")
    _refuse_idle(recipe, base.encoder)
    return msgspec.structs.replace(recipe, task=recipe.task.settle(data.train, data.labels))


def _refuse_idle(recipe: FinetuningRecipe, body: Encoder) -> None:
    """Refuse what has no effect with or without a frozen encoder, and objectives that the model cannot serve."""
    for name, settings in recipe.objectives.items():
        if recipe.frozen or recipe.downstream is not None:
            raise UserError(
                f"objective.{name} goes with neither a frozen encoder nor a downstream model", remedy="remove it"
            )
        if missing := sorted(settings.asks - body.gives - {WHOLE_TEXT}):
            raise UserError(
                f"objective.{name} needs {describe(missing[0])}, which neither this model nor labeled examples provide",
                remedy="remove it",
            )
    if recipe.frozen and recipe.optimizer.layer_decay != 1:
        raise UserError("optimizer.layer_decay has no effect on a frozen encoder", remedy="leave it away")
    if recipe.frozen and recipe.reset is not None:
        raise UserError("reset has no effect on a frozen encoder: it would never learn", remedy="leave it away")
    if recipe.frozen and recipe.batch.recompute:
        raise UserError("batch.recompute has no effect on a frozen encoder", remedy="leave it away")
    if not recipe.frozen and recipe.downstream is not None and recipe.downstream.plain(body.num_layers):
        raise UserError(
            "--downstream linear has no effect without --frozen: it is what fine-tuning does",
            remedy="pass --frozen, or leave it away",
        )
