"""Task distillation: a student learns a task from a fine-tuned teacher.

examples, labeled or not -> the teacher's labels -> samples -> (layers, then predictions) -> RUN/model

Jiao et al. 2020 (TinyBERT), section 3.2: in the first part of the run layers are matched, in the second predictions are
learned; a recipe without layer_matching has the second part alone. Here both are parts of one run with one schedule,
whose rate is lower in the second part; in the paper they are separate runs. Everything after the preparation is
fine-tuning.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from unmask.model.model import Model, load_model
from unmask.objectives.layer_matching import NAME as LAYER_MATCHING
from unmask.objectives.learner import Learner
from unmask.objectives.soft_targets import NAME as SOFT_TARGETS
from unmask.objectives.teacher import TEACHER, Teacher
from unmask.recipes.recipe import FinetuningRecipe, Objectives
from unmask.support.errors import UserError, counted
from unmask.support.fingerprint import fingerprint_values
from unmask.support.messages import argument, call, setting
from unmask.support.settings import convert, put
from unmask.tasks.task import Task
from unmask.training.machine import Machine
from unmask.training.runs.display import Display
from unmask.workflows.distillation.lesson import Lesson, read_lesson, untuned, with_predictions
from unmask.workflows.distillation.student import framed_as, student_of, student_settings, vocabulary_difference
from unmask.workflows.distillation.targets import TargetStore, check_targets
from unmask.workflows.finetuning.checks import check_effects
from unmask.workflows.finetuning.examples import Examples
from unmask.workflows.finetuning.job import defaults
from unmask.workflows.finetuning.prepare import Phase, Prepared, assemble

INTERMEDIATE = 0.5
"""Share of the steps in which only layers are matched, by default."""


def prepare_lesson(lesson: Lesson, machine: Machine, display: Display) -> Prepared:
    """Read teacher, student and examples, and resolve the settings.

    Raises:
        UserError: they are inconsistent.
    """
    lesson.check()
    model = load_model(lesson.teacher, allow_pickle=lesson.allow_pickle)
    if model.task is None:
        raise UserError(
            f"{lesson.teacher} was not fine-tuned for a task",
            remedy=(
                f"fine-tune it first: {call('finetune')}, or distill it on text: {argument('corpus')} or "
                f"{argument('text')}"
            ),
        )
    student, about = _student(lesson, model)
    exact = replace(machine, precision="float32")
    data = read_lesson(lesson, model.task, model, exact, display)
    display.warn(*data.warnings)
    taught = teacher_of_task(model)
    recipe = _resolve(lesson, model.task, student, data, taught)
    why = _difference(lesson, model, student)
    if why:
        _check_predictions_alone(recipe, why)
    identity = model.fingerprint()
    ready = assemble(student, recipe, data, "", machine, taught)
    assert recipe.distillation is not None
    ready.learner.weights[recipe.task.part] = recipe.distillation.gold
    phases, store = phases_of(recipe), None
    if lesson.targets is not None:
        check_targets(phases[-1].objectives)
        store = TargetStore(lesson.targets, {"teacher": identity, "data set": fingerprint_values(data.fingerprints())})
    attached = bool(why) or store is not None or _predicts_again(recipe, phases[-1])
    if attached:
        precise = machine if store is None and not why else exact
        ready = with_predictions(ready, model, precise, display, store, same=not why)
    read = not why and (not attached or len(phases) > 1)
    taught.to(machine.device, machine.dtype)
    return replace(
        ready,
        inputs={**ready.inputs, **model.inputs("teacher")},
        how=_how(lesson),
        notes=(about, *data.notes),
        phases=phases,
        teacher=taught if read else None,
    )


def prepare_baseline(lesson: Lesson, machine: Machine, display: Display) -> Prepared:
    """Prepare the fine-tuning of the same student, from the same weights, on the labeled examples without a teacher.

    Raises:
        UserError: there are no labeled examples.
    """
    if not lesson.files.train:
        raise UserError(
            f"without {argument('train')} there are no labels for {argument('baseline')} to learn from",
            remedy="omit it",
        )
    model = load_model(lesson.teacher, allow_pickle=lesson.allow_pickle)
    assert model.task is not None
    student, about = _student(lesson, model)
    labeled = replace(lesson, unlabelled=(), augment=0, masked_lm=None)
    data = read_lesson(labeled, model.task, model, machine, display)
    recipe = _resolve(labeled, model.task, student, data, teacher_of_task(model))
    recipe = msgspec.structs.replace(recipe, objective=Objectives(), distillation=None)
    return replace(assemble(student, recipe, data, "", machine), notes=(about,))


def teacher_of_task(model: Model) -> Teacher:
    """Return a fine-tuned model as a teacher."""
    assert model.task is not None
    body = model.body()
    head = model.task.build_on(body, model.labels)
    model.take_head(head)
    return Teacher(Learner(body, {model.task.part: head}))


def phases_of(recipe: FinetuningRecipe) -> tuple[Phase, ...]:
    """Return the parts of a run: layers are matched, then predictions are learned, or everything at once."""
    assert recipe.distillation is not None
    gold = (recipe.task.part,) if recipe.distillation.gold else ()
    names, share = tuple(recipe.objectives), recipe.distillation.intermediate
    if not share:
        return (Phase(1.0, (*gold, *names)),)
    others = tuple(name for name in names if name != LAYER_MATCHING)
    return Phase(share, (LAYER_MATCHING,)), Phase(1 - share, (*gold, *others))


def _predicts_again(recipe: FinetuningRecipe, last: Phase) -> bool:
    """Return whether the teacher would read samples several times, for the same predictions and nothing else."""
    objectives = recipe.objectives
    taught = [name for name in last.objectives if name in objectives and TEACHER in objectives[name].requires]
    return taught == [SOFT_TARGETS] and last.share * (recipe.budget.epochs or 0) > 1


def _student(lesson: Lesson, teacher: Model) -> tuple[Model, str]:
    """Return the student before it learns, and a line about it."""
    setting = lesson.settings.get("seed", 0)
    seed = setting if isinstance(setting, int) and setting >= 0 else 0  # others are refused with the other settings
    if lesson.init is None:
        shape = student_settings(lesson.recipe.encoder, teacher.encoder.settings, lesson.layers)
        return student_of(teacher, shape, f"{lesson.teacher}", seed=seed)
    dropout = lesson.recipe.encoder.dropout
    student = load_model(lesson.init, allow_pickle=lesson.allow_pickle, dropout=dropout, seed=seed)
    if student.downstream is not None:
        raise UserError(f"{lesson.init} has a downstream model, which a student cannot", remedy="give an encoder")
    return framed_as(student, teacher), f"the student continues from {lesson.init}"


def _resolve(lesson: Lesson, task: Task, student: Model, data: Examples, teacher: Teacher) -> FinetuningRecipe:
    """Return the recipe: the rule of fine-tuning, the objectives of the student's recipe, the task of the teacher."""
    kind, tokens = task.kind, student.tokens
    table: Any = defaults(kind, student.encoder.settings, len(data.train), pretrained=tokens != 0, tokens=tokens)
    objectives = lesson.recipe.objectives
    taught = {
        name: msgspec.to_builtins(objective) for name, objective in objectives.items() if TEACHER in objective.requires
    }
    taught[SOFT_TARGETS] = {"temperature": 1.0, **taught.get(SOFT_TARGETS, {}), "all_tokens": False}
    table |= {"task": msgspec.to_builtins(untuned(task)), "objective": taught, "distillation": {}}
    if put(table, lesson.settings, FinetuningRecipe)["objective"].get(LAYER_MATCHING):
        table["distillation"] = {"intermediate": INTERMEDIATE}
        table["budget"]["epochs"] *= 2  # as many for each part
    recipe = convert(put(table, lesson.settings, FinetuningRecipe), FinetuningRecipe, argument("settings"))
    for name, encoder in (("student", student.encoder), ("teacher", teacher.encoder)):
        if recipe.task.length > encoder.longest:
            raise UserError(
                f"length {recipe.task.length} exceeds the {encoder.longest} positions of the {name}",
                remedy=f"pass {setting('task.length', encoder.longest)} or less",
            )
    for name in ("all_tokens", *(("temperature",) if "temperature" in task.refusals else ())):
        if (key := f"objective.{SOFT_TARGETS}.{name}") in lesson.settings:
            raise UserError(f"{setting(f'{key}', '…')} has no effect on {kind}", remedy="remove it")
    if SOFT_TARGETS not in recipe.objectives and not (recipe.distillation and recipe.distillation.gold):
        raise UserError(
            f"without objective.{SOFT_TARGETS} the student learns no predictions",
            remedy=f"keep it, or pass {setting('distillation.gold', 1)}",
        )
    check_effects(recipe, student.encoder, teacher)
    return msgspec.structs.replace(recipe, task=recipe.task.settle(data.train, data.labels))


def _difference(lesson: Lesson, teacher: Model, student: Model) -> str:
    """Return why a student reads texts in another way than its teacher; "" if it does not."""
    if why := vocabulary_difference(teacher, student):
        return f"the vocabulary of the student is not that of {lesson.teacher}: {why}"
    student_summary, teacher_summary = (model.encoder.settings.summary for model in (student, teacher))
    if student_summary == teacher_summary:
        return ""
    return (
        f"the student reads the vector of a text at its {student_summary} token, and {lesson.teacher} at the "
        f"{teacher_summary} one"
    )


def _check_predictions_alone(recipe: FinetuningRecipe, why: str) -> None:
    """Raise an error if more than predictions of texts or words is to be learned by a student that reads otherwise."""
    for name in recipe.objectives:
        if name != SOFT_TARGETS:
            raise UserError(
                f"objective.{name} compares tokens, but {why}", remedy=f"pass {setting(f'objective.{name}', False)}"
            )
    if reason := recipe.task.refusals.get("vocabulary"):
        raise UserError(f"{reason.why}, but {why}", remedy=reason.remedy)


def _how(lesson: Lesson) -> str:
    """Return what the run does, for the card of its model."""
    files = [*lesson.files.train, *lesson.unlabelled]
    more = f", {counted(lesson.augment, 'variant')} of each example" if lesson.augment else ""
    return f"Distilled from {lesson.teacher} (recipe {lesson.recipe.name}; {', '.join(map(str, files))}{more})"
