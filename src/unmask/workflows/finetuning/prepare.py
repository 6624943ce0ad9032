"""Preparation of a fine-tuning run before its directory is opened: model, resolved recipe, examples as samples.

The learner is the body of the model, the downstream model, if any, and the head of the task. Errors in files, settings
and model are raised here, before a run directory is created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast

import msgspec
import torch

from unmask.data.batches.rng import derive_seed
from unmask.families.checkpoints.check import check_size, on_meta
from unmask.model.model import Model, load_model
from unmask.nn.encoders.downstream import Downstream
from unmask.nn.encoders.encoder import POOLER, SEPARATE_LAYERS, WithPooler
from unmask.objectives.learner import Learner, loss_weights
from unmask.objectives.objective import BuildContext, Objective
from unmask.objectives.teacher import Teacher
from unmask.recipes.recipe import FinetuningRecipe, recipe_table
from unmask.support.errors import UserError
from unmask.support.messages import argument, setting
from unmask.support.settings import Overrides, convert, put
from unmask.tasks import TASKS, AnyTask
from unmask.tasks.holding_out import DEV_SHARE, ENOUGH
from unmask.tasks.task import Framed, Task
from unmask.training.machine import Machine
from unmask.training.runs.display import Display
from unmask.workflows.finetuning.checks import check_difference, check_downstream, check_effects, check_step
from unmask.workflows.finetuning.examples import Examples, describe_absent, drawn, frame_examples, read_examples
from unmask.workflows.finetuning.job import FewLabels, FinetuningJob, InitialModel, defaults, few_labels, task_defaults


@dataclass(frozen=True)
class Phase:
    """A part of a run with objectives of its own.

    Attributes:
        share: share of the run's steps.
        objectives: the names of its objectives, among them that of the task.
    """

    share: float
    objectives: tuple[str, ...]


@dataclass(frozen=True)
class Prepared:
    """Everything that a fine-tuning run needs.

    Attributes:
        base: the model to fine-tune.
        recipe: the recipe with all settings resolved.
        data: the training examples and the examples that results are reported on.
        split: the examples of `data`; with early stopping, or if a setting of the task is tuned without folds, the
            training examples divided into those to train on and a tenth for this choice.
        learner: encoder and head, on the device.
        reuses_head: whether the head is that of the model.
        train, held: samples to train on, and samples to evaluate on during training.
        inputs: fingerprints of model and examples.
        source: name of what the model was made of, in messages; empty: `notes` name it.
        how: what the run does, for the card of its model.
        folds: whether the task is tuned on folds of the training examples, before the run is trained on all of them.
        tuned: the task that was tuned so.
        few: the rule for few labels; None: it does not apply.
        notes: lines to print at the start.
        teacher: what objectives learn from, if they do.
        phases: the parts of the run.
    """

    base: Model
    recipe: FinetuningRecipe
    data: Examples
    split: Examples
    learner: Learner
    reuses_head: bool
    train: Framed
    held: Framed
    inputs: dict[str, str]
    source: str
    how: str
    folds: bool = False
    tuned: Task | None = None
    few: FewLabels | None = None
    notes: tuple[str, ...] = ()
    teacher: Teacher | None = None
    phases: tuple[Phase, ...] = ()

    @property
    def stops_early(self) -> bool:
        """Whether evaluations during training decide when the run ends."""
        return self.recipe.budget.patience is not None


def prepare(job: FinetuningJob, machine: Machine, display: Display, *, choosing: bool) -> Prepared:
    """Read model and examples, resolve the settings, and convert the examples to samples.

    Args:
        job: the task, the model, the files and the settings.
        machine: the device of the learner.
        display: prints what the formats of the files exclude.
        choosing: whether to evaluate on a tenth of the training examples instead of the dev examples.

    Raises:
        UserError: files, model and settings are inconsistent.
    """
    table = _table(job)
    base = load_initial(job.start, table | dict(job.settings))
    asked = asked_task(job.task, base, table.get("task", {}), job.settings, _source(job), FinetuningRecipe)
    read = read_examples(asked, job.files, base, hold_out=not job.all_examples)
    chosen = drawn(read.train, job.examples, table | dict(job.settings))
    absent = describe_absent(asked, read.train, chosen) if job.examples else []
    display.say(*read.notes, *absent)
    display.warn(*read.warnings)
    read = replace(read, train=chosen)
    data = read.inner(asked) if choosing else read
    few = few_labels(job, data.train, len(data.labels), tokens=base.tokens, marked=base.marks_pairs)
    recipe = _resolve(job, table, base, asked, data, few)
    ready = assemble(base, recipe, data, f"{job.start.model}", machine, folds=by_folds(recipe, data.train))
    if job.files.dev and (choosing or ready.stops_early):  # used at the end or by another run: check them now
        recipe.task.frame(base.tokenizer, read.held, data.labels, gold=True)
    return replace(ready, few=few)


def by_folds(recipe: FinetuningRecipe, examples: Sequence[Any]) -> bool:
    """Return whether settings of the task are tuned by folds, as a tenth of the examples would be too few."""
    tunes = recipe.task.tunes and recipe.task.training.probe and recipe.budget.patience is None
    return tunes and DEV_SHARE * len(examples) < ENOUGH


def assemble(
    base: Model,
    recipe: FinetuningRecipe,
    data: Examples,
    source: str,
    machine: Machine,
    teacher: Teacher | None = None,
    *,
    folds: bool = False,
) -> Prepared:
    """Build the learner, and convert the examples to samples.

    Args:
        base: the model to fine-tune.
        recipe: the recipe with all settings resolved.
        data: the examples.
        source: see `Prepared`.
        machine: the device of the learner.
        teacher: what objectives learn from.
        folds: see `Prepared`.

    Raises:
        UserError: examples, recipe and model are inconsistent.
    """
    task = recipe.task
    if recipe.distillation is None or recipe.distillation.gold:
        task.check_gold(data.train)
    base = base.with_tokens(task.new_tokens(base.tokenizer), recipe.seed)
    learner, reuses_head = build_learner(base, data.labels, recipe, teacher)
    learner.to(machine.device)
    stops_early = recipe.budget.patience is not None
    # examples for early stopping or for tuning a setting are neither trained on nor reported on
    split = data.inner(task) if stops_early or (task.tunes and not folds) else data
    with ThreadPoolExecutor(1) as aside:
        inputs = aside.submit(lambda: {**base.inputs("model"), **data.fingerprints()})
        train = frame_examples(task, base, split.train, data.labels, "training")
        evaluated = (split if stops_early else data).held
        held = frame_examples(task, base, evaluated, data.labels, "evaluation")
    how = "Trained on frozen features" if recipe.frozen else "Fine-tuned"
    return Prepared(
        base=base,
        recipe=recipe,
        data=data,
        split=split,
        learner=learner,
        reuses_head=reuses_head,
        train=train,
        held=held,
        inputs=inputs.result(),
        source=source,
        how=how,
        folds=folds,
        teacher=teacher,
    )


class _LoadSettings(msgspec.Struct, frozen=True):
    """The settings needed to load the model; the defaults of the others depend on its width and on the data."""

    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None


def load_initial(start: InitialModel, settings: Mapping[str, Any]) -> Model:
    """Load the initial model of a run with the seed and the dropout rate of its settings.

    Raises:
        UserError: there is no such model, it is damaged, or one of the settings is not valid.
    """
    values = {key: value for key, value in settings.items() if key in ("seed", "dropout")}
    chosen = convert(put({}, values, _LoadSettings), _LoadSettings, argument("settings"))
    return load_model(
        start.model,
        tokenizer=start.tokenizer,
        allow_pickle=start.allow_pickle,
        dropout=chosen.dropout,
        seed=chosen.seed,
    )


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
            at = recipe.task.build_on(Downstream(chosen, base.encoder), labels).at
        check_downstream(chosen, layers, recipe.task.part, at)
        if chosen.kind == "difference":
            check_difference(base, recipe.task)
    small = None if chosen is None else Downstream(chosen, base.encoder)
    body = base.encoder if small is None else small
    adopted = recipe.task.head.adopts
    if adopted and adopted not in base.heads:
        raise UserError(
            f"{recipe.task.title} needs the {adopted} head of the model, which it has not",
            remedy="use a model as it was pretrained, such as a ForMaskedLM of transformers",
        )
    head = recipe.task.build_on(body, labels)
    is_alike = tuple(base.labels) == tuple(labels) and base.downstream == chosen
    own = adopted or recipe.task.part
    source = next((name for name in (own, *recipe.task.head.continues) if name in base.heads), own)
    is_taken = (adopted or is_alike) and not base.take(source, head)
    reused = bool(is_taken and is_alike)
    if reused and small is not None:
        small.load_own(base.heads["downstream"])
    objectives: dict[str, Objective] = {recipe.task.part: head}
    context = BuildContext(body, teacher, base.tokenizer.size, objectives)
    for name, settings in recipe.objectives.items():
        objectives[name] = settings.build(context)
    return Learner(body, objectives, {recipe.task.part: 1.0, **loss_weights(recipe.objectives)}), reused


def finished_model(base: Model, learner: Learner, labels: Sequence[str], task: Task) -> Model:
    """Return the model of a trained learner: the encoder, the downstream model, if any, and the head."""
    heads, small = {task.head.adopts or task.part: learner.parts[task.part].published()}, learner.encoder.chosen
    if task.head.adopts:
        heads[task.part] = {}
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
        pooling=task.vectors.pooling,
    )


def _source(job: FinetuningJob) -> str:
    """Return where the settings of a job are from, in errors."""
    return str(job.recipe or argument("settings"))


def _table(job: FinetuningJob) -> dict[str, Any]:
    """Return the recipe that a job names, as a table; empty if it names none.

    Raises:
        UserError: it cannot be read, or is not a recipe of this task.
    """
    if job.recipe is None:
        return {}
    table, name = recipe_table(job.recipe)
    kind = table["task"].get("kind") if isinstance(table.get("task"), dict) else None
    if kind != job.task:
        what = f"for {kind}" if kind else "not one of fine-tuning"
        raise UserError(f"this recipe is {what}", file=name, remedy=f"name one for {job.task}")
    if "distillation" in table:
        raise UserError("this recipe is one of a distillation", file=name, remedy="use unmask distill")
    return table


class _OneTask(msgspec.Struct, frozen=True):
    task: AnyTask


def asked_task(
    kind: str, base: Model, table: Mapping[str, Any], settings: Overrides, source: str, whole: Any = None
) -> AnyTask:
    """Return a task with the settings that were asked for, by which its examples are read, and not yet settled by them.

    Args:
        kind: the task.
        base: the model to fine-tune.
        table: [task] of a recipe; may be empty.
        settings: settings of the run, among them those of the task.
        source: where they are from, in errors.
        whole: type of all settings of the run; see `convert`.

    Raises:
        UserError: a setting is not valid.
    """
    rule = {"task": {**task_defaults(kind, base.encoder.settings), **inherited(kind, base), **table}}
    own = {key: value for key, value in settings.items() if key.split(".")[0] == "task"}
    return convert(put(rule, own, _OneTask), _OneTask, source, whole).task


def inherited(kind: str, base: Model) -> dict[str, Any]:
    """Return the settings of a task that are by default those of the model: of its own task, and of its vectors."""
    own: dict[str, Any] = {}
    if TASKS[kind]().vectors.pooling is not None and base.pooling is not None and base.pooling.length is not None:
        own["length"] = min(base.pooling.length, base.encoder.longest)
    if isinstance(base.task, TASKS[kind]):
        own |= {name: msgspec.to_builtins(getattr(base.task, name)) for name in base.task.training.inherited}
    return own


def _resolve(
    job: FinetuningJob, table: dict[str, Any], base: Model, asked: AnyTask, data: Examples, few: FewLabels | None
) -> FinetuningRecipe:
    """Return the recipe, that of the job or the rule, overridden by its settings and resolved by the examples."""
    rule: dict[str, Any] = table or defaults(
        job.task,
        base.encoder.settings,
        len(data.train),
        pretrained=job.start.pretrained,
        tokens=base.tokens,
        frozen=bool(job.frozen),
        downstream=job.downstream,
        few=few,
        contrasted=asked.contrasts(data.train),
        per_sample=asked.examples_per_sample(data.train),
    )
    rule["task"] = {**rule["task"], **inherited(job.task, base), **table.get("task", {})}
    recipe = convert(put(rule, job.settings, FinetuningRecipe), FinetuningRecipe, _source(job))
    if recipe.task.length > base.encoder.longest:
        raise UserError(f"length {recipe.task.length} exceeds the {base.encoder.longest} positions of the model")
    check_effects(recipe, base.encoder)
    check_step(recipe.batch, recipe.task, data.train)
    task = recipe.task.settle(data.train, data.labels).with_pooling(base.pooling)
    return msgspec.structs.replace(recipe, task=task)


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
