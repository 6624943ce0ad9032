"""Refusal of comparisons that cannot be made as they are, before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.corpus.build import check_sources
from unmask.data.labelled.label_spellings import shown
from unmask.data.text.documents import Skipped, TextOptions, read_documents, refuse_none
from unmask.families.checkpoints.safetensors_file import PICKLED, weights_file
from unmask.nn.encoders.encoder import HeadSpec
from unmask.recipes.recipe import FinetuningRecipe, Recipe, as_recipe
from unmask.support.errors import UserError, check_count, nearest, refuse_idle
from unmask.support.messages import argument, call
from unmask.support.settings import Overrides, convert, put
from unmask.tasks import TASKS
from unmask.tasks.task import Operation, Task
from unmask.workflows.comparing.settings import Arm, Comparison, TaskData, by_size, errors_of, read_budget
from unmask.workflows.distillation.lesson import Lesson, untuned
from unmask.workflows.finetuning.examples import Examples, Parts, drawn, read_parts
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel, defaults
from unmask.workflows.finetuning.prepare import by_folds
from unmask.workflows.pretraining.checks import refuse_fixed

MAX_MODELS = 10_000
"""Maximum number of arms × tasks × seeds, for each of which a model is trained."""
FEWEST_TO_RACE = 3
"""Number of seeds from which on an arm can stop before its last one."""


def check_comparison(comparison: Comparison) -> None:
    """Check what can be checked before a file is read.

    Raises:
        UserError: an arm or a task is unknown, or parts contradict each other.
    """
    arms = comparison.named_arms()
    if len(arms) < 2:
        remedy = f"pass {argument('arms')}, such as modernbert-mini, a checkpoint MODEL, MODEL+adapt, random"
        raise UserError("a comparison needs at least two arms", remedy=remedy)
    if not comparison.tasks:
        _check_without_tasks(comparison, arms)
    for name, data in comparison.named_tasks().items():
        if data.task not in TASKS:
            raise UserError(f"task '{name}': unknown task '{data.task}'", remedy=nearest(data.task, TASKS))
        if not data.train:
            raise UserError(f"task '{name}': there are no training examples", remedy="name files in train")
        if data.limit is not None and data.limit < 1:
            raise UserError(f"task '{name}': at least one training example is needed", remedy="name more in examples")
        if data.unlabelled and not any(arm.teacher for arm in arms.values()):
            raise UserError(f"task '{name}': unlabelled has no effect: no arm is a student", remedy="remove it")
        for arm_name, arm in arms.items():
            operations: tuple[Operation, ...] = ("frozen", "downstream") if arm.downstream else ("frozen",)
            refusals = TASKS[data.task]().refusals if arm.frozen else {}
            if reason := next(filter(None, map(refusals.get, operations)), None):
                at = f"arm '{arm_name}', task '{name}'"
                raise UserError(f"{at}: {reason.why}", remedy=f"remove use '{arm.use}' of the arm")
    training = [name for name, arm in arms.items() if arm.trains]
    if training and not comparison.text:
        raise UserError(f"arm '{training[0]}' is trained on text, and there is none", remedy=f"pass {argument('text')}")
    if training and not comparison.budget:
        raise UserError(f"arm '{training[0]}' needs a budget", remedy=f"pass {argument('budget', '30min')}")
    random = [name for name, arm in arms.items() if arm.way == "random" and not arm.model]
    if random and not comparison.text and not any(arm.model for arm in arms.values()):
        raise UserError(f"arm '{random[0]}' needs a tokenizer", remedy=f"pass {argument('text')}, or add a checkpoint")
    if comparison.text and comparison.tasks and not training and not random:
        refuse_idle(": no arm is trained on it", text=comparison.text)
    if not training:
        refuse_idle(": no arm is trained on text", outlook=comparison.outlook, budget=comparison.budget)
    if not (training or comparison.tasks):
        refuse_idle(": nothing is trained", search=comparison.search)
    if comparison.settings and not training and not random:
        raise UserError("settings have no effect: no arm has a recipe", remedy="remove them")
    if comparison.design != "full" and not comparison.vary:
        raise UserError("design has no effect: nothing is varied", remedy="remove it, or name factors in vary")
    if not comparison.text:
        documents, field = comparison.documents != "auto", comparison.field != "text"
        refuse_idle(f"without {argument('text')}", documents=documents, field=field)
    if comparison.race and comparison.seeds < FEWEST_TO_RACE:
        raise UserError(
            f"{argument('race')} has no effect with {argument('seeds', comparison.seeds)}: an arm stops after two "
            "seeds at the earliest",
            remedy=f"pass {argument('seeds', FEWEST_TO_RACE)} or more",
        )
    check_count("seeds", comparison.seeds)
    if len(arms) * max(1, len(comparison.named_tasks())) * comparison.seeds > MAX_MODELS:
        raise UserError(
            f"the arms, tasks and {argument('seeds')} are more than {MAX_MODELS:,} models to train",
            remedy="compare fewer arms, or with fewer seeds",
        )
    _check_settings(comparison, arms)
    if comparison.budget:
        read_budget(comparison.budget)


def check_weights(arms: Mapping[str, Arm]) -> None:
    """Check that no checkpoint is pickled: cells, which several processes compute, do not load such weights.

    Raises:
        UserError: one is.
    """
    for name, arm in arms.items():
        file = weights_file(Path(arm.model)) if arm.model else None
        if file and file.name == PICKLED:
            copy = call("export", model=arm.model, format="huggingface", allow_pickle=True, out="NEW")
            raise UserError(
                f"arm '{name}': pickled weights can execute arbitrary code when they are loaded",
                file=file,
                remedy=f"write them as safetensors, and compare the copy: {copy}",
            )


def check_text(text: Sequence[str | Path], reading: TextOptions) -> None:
    """Check that a text has a document, which a cell would find out only when arms and tasks have been computed.

    Raises:
        UserError: a file is missing or given twice, or there is no text in any of them.
    """
    if text:
        check_sources(text, reading)
        skipped = Skipped()
        next(refuse_none(read_documents(text, reading, skipped), skipped, text))


def _check_without_tasks(comparison: Comparison, arms: Mapping[str, Arm]) -> None:
    """Check a comparison by how well held-out text is predicted.

    Raises:
        UserError: there is no text, an arm predicts none, or a setting of tasks has no effect.
    """
    if not comparison.text:
        raise UserError(
            "a comparison needs a task, or text to predict",
            remedy=f"pass {argument('train', 'FILE')} or {argument('text', 'FILE')}",
        )
    if comparison.task_settings:
        raise UserError("task_settings have no effect: there is no task", remedy="remove them")
    for name, arm in arms.items():
        if arm.way in ("random", "student"):
            raise UserError(f"arm '{name}' predicts no text, and there is no task", remedy="remove it, or name a task")
        if arm.use or arm.task_settings:
            raise UserError(f"arm '{name}': use and task_settings have no effect without a task", remedy="remove them")


def _check_student(name: str, arm: Arm, arms: Mapping[str, Arm]) -> None:
    """Check a student of another arm.

    Raises:
        UserError: there is no such arm, or it is a student, too, or the settings of the student have no effect.
    """
    if arm.teacher not in arms:
        raise UserError(f"arm '{name}': no arm '{arm.teacher}'", remedy=nearest(arm.teacher, arms))
    if arms[arm.teacher].teacher:
        raise UserError(f"arm '{name}': its teacher is a student, too", remedy="name another arm")
    if arm.layers is not None and arm.layers < 1:
        raise UserError(f"arm '{name}': layers must be at least 1, not {arm.layers}")
    fixed = "layers" if arm.layers is not None else ""
    refuse_fixed(arm.settings, encoder=fixed, tokenizer="the student has the teacher's tokenizer")
    _check_share(name, as_recipe(arm.recipe, arm.settings))


def _check_share(name: str, recipe: Recipe) -> None:
    """Raise an error if the recipe of an arm that starts from no checkpoint keeps a share of initial weights."""
    if recipe.initial_share:
        raise UserError(
            f"arm '{name}': initial_share has no effect: the arm starts from no checkpoint",
            remedy="adapt one: CHECKPOINT+adapt, or use another recipe",
        )


def _check_settings(comparison: Comparison, arms: Mapping[str, Arm]) -> None:
    """Check the settings of fine-tuning, and that no settings are those that the comparison itself has.

    Raises:
        UserError: one is unknown or invalid, or has no effect.
    """
    for name, arm in arms.items():
        if arm.teacher:
            _check_student(name, arm, arms)
        if arm.way == "pretrain":
            _check_share(name, as_recipe(arm.recipe, {**comparison.settings, **arm.settings}))
        for key in {**comparison.settings, **arm.settings} if arm.trains else arm.settings:
            if key == "seed" or key.partition(".")[0] == "budget":
                instead = argument("seeds" if key == "seed" else "budget")
                raise UserError(f"arm '{name}': {key} has no effect", remedy=f"pass {instead}")
        for task, data in comparison.tasks.items():
            settings = {**comparison.task_settings, **data.settings, **arm.task_settings}
            if "seed" in settings:
                raise UserError(f"task '{task}': seed has no effect", remedy=f"pass {argument('seeds')}")
            if scoring := [key for key in arm.task_settings if key in _scoring(data)]:
                raise UserError(
                    f"arm '{name}': scores by another {scoring[0]} cannot be compared",
                    remedy=f"set it for all arms: settings of the task '{task}'",
                )
            for key in settings:
                of_small = key.partition(".")[0] == "downstream"
                if key in ("frozen", "downstream.kind") or (of_small and not arm.frozen):
                    raise UserError(
                        f"arm '{name}', task '{task}': {key} has no effect",
                        remedy="choose use of the arm: frozen, average or rnn" if not arm.frozen else "remove it",
                    )
            model = InitialModel(arm.model or arm.recipe)
            FinetuningJob(data.task, model, data.files, settings, arm.frozen, arm.downstream).check()
            if arm.teacher:
                Lesson(as_recipe(arm.recipe), "", data.files, settings=settings).check()
            recipe = _recipe(data, settings, f"arm '{name}', task '{task}'", arm)
            grouped = untuned(recipe.task).grouped if arm.teacher else ""
            if grouped and settings.get("objective.soft_targets") is not False:
                raise UserError(
                    f"arm '{name}', task '{task}': a student learns a prediction for each text, and these examples are "
                    f"groups of {grouped}",
                    remedy="set task.windows to 1 for all arms"
                    if grouped == "windows"
                    else "remove the arm or the task",
                )


def _recipe(data: TaskData, settings: Overrides, source: str, arm: Arm) -> FinetuningRecipe:
    """Return a recipe of an arm's fine-tuning with settings, which are checked alike for all models."""
    body, frozen = as_recipe("bert-tiny").encoder, bool(arm.frozen)
    rule = defaults(data.task, body, 1000, pretrained=True, frozen=frozen, downstream=arm.downstream)
    return convert(put(rule, settings, FinetuningRecipe), FinetuningRecipe, source)


def _scoring(data: TaskData) -> list[str]:
    """Return the keys of the settings that the metrics of a task depend on."""
    return [f"task.{name}" for name in TASKS[data.task].scoring]


def settle_scoring(comparison: Comparison, name: str, data: TaskData) -> dict[str, Any]:
    """Read and check the labeled files of a task with all of its sizes; return what its metrics depend on, by key.

    They are settled by all training examples, and so the same for all arms, seeds and numbers of examples, whichever
    label a checkpoint calls the second, and whichever labels or grades the examples that a run draws have.

    Raises:
        UserError: a file cannot be read, there are too few examples, a test example has a label that no training
            example has, the task does not have the metric that decides, or an arm has features of texts where those of
            tokens are needed.
    """
    source = f"task '{name}'"
    recipe = _recipe(data, {**comparison.task_settings, **data.settings}, source, Arm())
    with errors_of(name, "task"):
        parts = read_parts(recipe.task, data.files)
    sizes = [drawn(parts.train, sized.limit, {}) for _, sized in by_size(name, data)]
    _check_labels(recipe.task, parts)
    task = recipe.task.settle(parts.train, parts.labels)
    task.check_gold(parts.train)
    averaged = [arm_name for arm_name, arm in comparison.named_arms().items() if arm.use == "average"]
    if averaged and task.build(HeadSpec(1), parts.labels).at != "summary":
        raise UserError(
            f"arm '{averaged[0]}', {source}: an average is one vector per text, but {task.title} needs one per token",
            remedy="choose another use of the arm: frozen or rnn",
        )
    recipe = msgspec.structs.replace(recipe, task=task)
    for chosen in sizes:
        tunes = task.tunes and not by_folds(recipe, chosen)
        if comparison.search or recipe.budget.patience is not None or tunes:  # on a tenth of them
            Examples(chosen, [], parts.labels, []).inner(task)
    known = task.metrics_of(parts.held, parts.labels)
    if data.metric and data.metric not in known:
        raise UserError(f"{source}: no metric '{data.metric}' to decide by", remedy=nearest(data.metric, known))
    settled = {f"task.{setting}": getattr(task, setting) for setting in task.scoring}
    return {key: value for key, value in settled.items() if value not in (None, "")}


def _check_labels(task: Task, parts: Parts) -> None:
    """Check that models learn all labels that they are tested on.

    Raises:
        UserError: no training example has one of them.
    """
    known = task.classes(parts.labels)
    for example in parts.held:
        for label in task.labels_of(example):
            if label not in known:
                raise UserError(
                    f"no training example has the label {shown(label)}",
                    file=example.file,
                    line=getattr(example, "line", None),
                    remedy="correct it, or add examples of it to train",
                )
