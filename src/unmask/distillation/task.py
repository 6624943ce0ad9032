"""Task distillation: a student learns a task from a fine-tuned teacher.

examples, labeled or not -> the teacher's labels -> samples -> (layers, then predictions) -> RUN/model

Jiao et al. 2020 (TinyBERT), section 3.2: in the first part of the run layers are matched, in the second predictions are
learned; a recipe without layer_matching has the second part alone. Here both are parts of one run with one schedule,
whose rate is lower in the second part; in the paper they are separate runs. Everything after the preparation is
fine-tuning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from unmask.batches.batch import Sample
from unmask.distillation.augment import Proposer, augment
from unmask.distillation.general import check_targets, vocabulary_difference
from unmask.distillation.lesson import Lesson
from unmask.distillation.student import student_of, student_settings
from unmask.distillation.targets import TargetStore, sample_key
from unmask.errors import UserError, counted
from unmask.finetuning.examples import HOLD_OUT_SEED, Examples
from unmask.finetuning.prepare import Phase, Prepared, assemble, check_effects
from unmask.finetuning.rule import defaults
from unmask.inference.backend import TorchBackend
from unmask.inference.fill import no_masked_lm
from unmask.inference.predictor import Predictor
from unmask.labelled.labelled_file import is_plain, read_texts
from unmask.migration import refuse_old_settings
from unmask.model import Model, load_model
from unmask.objectives.layer_matching import NAME as LAYER_MATCHING
from unmask.objectives.learner import Learner
from unmask.objectives.soft_targets import NAME as SOFT_TARGETS
from unmask.objectives.teacher import TEACHER, Teacher
from unmask.recipe import FinetuningRecipe, Objectives
from unmask.runs.display import Display
from unmask.settings import convert, put
from unmask.tasks.regularization import NONE
from unmask.tasks.task import Framed, Task
from unmask.training.machine import Machine

INTERMEDIATE = 0.5
"""Share of the steps in which only layers are matched, by default."""


def prepare_lesson(lesson: Lesson, machine: Machine, display: Display) -> Prepared:
    """Read teacher, student and examples, and resolve the settings.

    Raises:
        UserError: they are inconsistent.
    """
    lesson.check()
    seed = int(lesson.settings.get("seed", 0))
    model = load_model(lesson.teacher, allow_pickle=lesson.allow_pickle, seed=seed)
    if model.task is None:
        raise UserError(
            f"{lesson.teacher} was not fine-tuned for a task",
            remedy="fine-tune it first: unmask finetune, or distill it on text: --corpus or --text",
        )
    student, about = _student(lesson, model, seed)
    exact = replace(machine, precision="float32")
    notes = [about]
    data = read_lesson(lesson, model.task, model, exact, display, notes)
    taught = teacher_of_task(model)
    recipe = _resolve(lesson, model.task, student, data, taught)
    why = vocabulary_difference(model, student) or _other_frame(model, student)
    if why:
        _check_predictions_alone(recipe, f"{lesson.teacher}", why)
    identity = model.fingerprint()
    ready = assemble(student, recipe, data, f"{lesson.init or lesson.teacher}", machine, taught)
    assert recipe.distillation is not None
    ready.learner.parts[recipe.task.part].weight = recipe.distillation.gold
    phases, store = phases_of(recipe), None
    if lesson.targets is not None:
        check_targets(phases[-1].objectives)
        data_of = hashlib.sha256("".join(data.fingerprints().values()).encode()).hexdigest()
        store = TargetStore(lesson.targets, {"teacher": identity, "data": data_of})
    if why or store is not None:
        ready = _with_predictions(ready, model, exact, display, store, same=not why)
    read = not why and (store is None or len(phases) > 1)
    taught.to(machine.device, machine.dtype)
    return replace(
        ready,
        inputs={**ready.inputs, "teacher": identity},
        how=_how(lesson),
        notes=tuple(notes),
        phases=phases,
        teacher=taught if read else None,
    )


def prepare_baseline(lesson: Lesson, machine: Machine, display: Display) -> Prepared:
    """Prepare the fine-tuning of the same student, from the same weights, on the labeled examples without a teacher.

    Raises:
        UserError: there are no labeled examples.
    """
    if not lesson.files.train:
        raise UserError("without --train there are no labels for --baseline to learn from", remedy="omit it")
    model = load_model(lesson.teacher, allow_pickle=lesson.allow_pickle)
    assert model.task is not None
    student, _ = _student(lesson, model, int(lesson.settings.get("seed", 0)))
    own = replace(lesson, unlabelled=(), augment=0, masked_lm=None)
    data = read_lesson(own, model.task, model, machine, display, [])
    recipe = _resolve(own, model.task, student, data, teacher_of_task(model))
    recipe = msgspec.structs.replace(recipe, objective=Objectives(), distillation=None)
    return assemble(student, recipe, data, f"{lesson.init or lesson.teacher}", machine)


def teacher_of_task(model: Model) -> Teacher:
    """Return a fine-tuned model as a teacher."""
    assert model.task is not None
    body = model.body()
    head = model.task.build(body.head, model.labels)
    model.take(model.task.part, head)
    return Teacher(Learner(body, {model.task.part: head}))


def phases_of(recipe: FinetuningRecipe) -> tuple[Phase, ...]:
    """Return the parts of a run: layers are matched, then predictions are learned, or everything at once."""
    assert recipe.distillation is not None
    own = (recipe.task.part,) if recipe.distillation.gold else ()
    names, share = tuple(recipe.objectives), recipe.distillation.intermediate
    if not share:
        return (Phase(1.0, (*own, *names)),)
    others = tuple(name for name in names if name != LAYER_MATCHING)
    return Phase(share, (LAYER_MATCHING,)), Phase(1 - share, (*own, *others))


def read_lesson(
    lesson: Lesson, task: Task, model: Model, machine: Machine, display: Display, notes: list[str]
) -> Examples:
    """Return the examples to train on and those to evaluate on; texts without labels have those of the teacher.

    Without dev files a tenth of the labeled examples is held out, or if there are none, a tenth of the others.

    Raises:
        UserError: a file cannot be read, or is not suitable for the task.
    """
    files = lesson.files
    read = partial(task.read, columns=files.columns, kind=files.kind, notes=notes)
    train = read(files.train) if files.train else []
    texts = [one for path in lesson.unlabelled for one in _read_unlabelled(path, task, lesson, notes)]
    found = task.labelled(texts, Predictor(model, machine, display).run(texts, notes)) if texts else []
    if files.dev:
        held = read(files.dev)
    elif train:
        train, held = task.hold_out(train, HOLD_OUT_SEED)
    else:
        found, held = task.hold_out(found, HOLD_OUT_SEED)
        notes.append("scored by how often the student agrees with the teacher: there are no labeled examples")
    train = [*train, *found]
    if lesson.augment:
        train += _variants(lesson, train, model, machine, display, notes)
    return Examples(train, held, model.labels, notes)


def _variants(
    lesson: Lesson, train: Sequence[Any], model: Model, machine: Machine, display: Display, notes: list[str]
) -> list[Any]:
    """Return variants of the training examples; see augment.py."""
    proposing = model
    if lesson.masked_lm is not None:
        proposing = load_model(lesson.masked_lm, allow_pickle=lesson.allow_pickle)
        if "masked_lm" not in proposing.heads:
            raise no_masked_lm(proposing)
    elif "masked_lm" not in model.heads:
        notes.append(
            f"words are replaced by those with similar embeddings, as {lesson.teacher} cannot fill masks; for words "
            "that fit their context, pass --masked-lm MODEL"
        )
    found = augment(train, lesson.augment, Proposer(proposing, machine), int(lesson.settings.get("seed", 0)), display)
    notes.append(f"{len(found):,} variants of {len(train):,} training examples")
    return found


def _read_unlabelled(path: Any, task: Task, lesson: Lesson, notes: list[str]) -> list[Any]:
    """Return the examples of a file of texts, or of examples whose labels are ignored."""
    files = lesson.files
    columns = {ours: theirs for ours, theirs in files.columns.items() if ours != "label"}
    if is_plain(path, files.kind) and not getattr(task, "pairs", None):
        return task.from_texts(read_texts(path, columns=columns, notes=notes))
    return task.read([path], columns=columns, kind=files.kind, gold=False, notes=notes)


def _student(lesson: Lesson, teacher: Model, seed: int) -> tuple[Model, str]:
    """Return the student before it learns, and a line about it."""
    if lesson.init is None:
        shape = student_settings(lesson.recipe.encoder, teacher.encoder.settings, lesson.layers)
        return student_of(teacher, shape, f"{lesson.teacher}", seed=seed)
    dropout = lesson.recipe.encoder.dropout
    student = load_model(lesson.init, allow_pickle=lesson.allow_pickle, dropout=dropout, seed=seed)
    if student.downstream is not None:
        raise UserError(f"{lesson.init} has a downstream model, which a student cannot", remedy="give an encoder")
    return student, f"the student continues from {lesson.init}"


def _resolve(lesson: Lesson, task: Task, student: Model, data: Examples, teacher: Teacher) -> FinetuningRecipe:
    """Return the recipe: the rule of fine-tuning, the objectives of the student's recipe, the task of the teacher."""
    kind, tokens = str(task.__struct_config__.tag), student.tokens
    table: Any = defaults(kind, student.encoder.settings, len(data.train), pretrained=tokens != 0, tokens=tokens)
    taught = {name: msgspec.to_builtins(one) for name, one in lesson.recipe.objectives.items() if TEACHER in one.asks}
    taught[SOFT_TARGETS] = {"temperature": 1.0, **taught.get(SOFT_TARGETS, {}), "all_tokens": False}
    table |= {"task": msgspec.to_builtins(_untuned(task)), "objective": taught, "distillation": {}}
    refuse_old_settings(lesson.settings)
    if put(table, lesson.settings, FinetuningRecipe)["objective"].get(LAYER_MATCHING):
        table["distillation"] = {"intermediate": INTERMEDIATE}
        table["budget"]["epochs"] *= 2  # as many for each part
    recipe = convert(put(table, lesson.settings, FinetuningRecipe), FinetuningRecipe, "--set")
    if recipe.task.length > student.encoder.longest:
        raise UserError(f"length {recipe.task.length} exceeds the {student.encoder.longest} positions of the student")
    for name in ("all_tokens", *(("temperature",) if kind == "regression" else ())):
        if (key := f"objective.{SOFT_TARGETS}.{name}") in lesson.settings:
            raise UserError(f"--set {key}=… has no effect on {kind}", remedy="remove it")
    if SOFT_TARGETS not in recipe.objectives and not (recipe.distillation and recipe.distillation.gold):
        raise UserError(
            f"without objective.{SOFT_TARGETS} the student learns no predictions",
            remedy="keep it, or pass --set distillation.gold=1",
        )
    check_effects(recipe, student.encoder, teacher)
    return msgspec.structs.replace(recipe, task=recipe.task.settle(data.train, data.labels))


def _untuned(task: Task) -> Task:
    """Return the task of the teacher without what belongs to its training: regularization and a tuned threshold."""
    own: dict[str, Any] = {"regularization": NONE, "threshold": None}
    return msgspec.structs.replace(task, **{name: value for name, value in own.items() if hasattr(task, name)})


def _other_frame(teacher: Model, student: Model) -> str:
    """Return why a student frames texts in another way than its teacher; "" if it does not."""
    ours, theirs = student.encoder.settings.summary, teacher.encoder.settings.summary
    return "" if ours == theirs else f"it reads texts at their {ours} token, not the {theirs} one"


def _check_predictions_alone(recipe: FinetuningRecipe, source: str, why: str) -> None:
    """Raise an error if more than predictions of texts or words is to be learned by a student that reads otherwise."""
    known = f"the vocabulary of the student is not that of {source}: {why}"
    for name in recipe.objectives:
        if name != SOFT_TARGETS:
            raise UserError(
                f"objective.{name} compares tokens, but {known}", remedy=f"pass --set objective.{name}=false"
            )
    if recipe.task.part == "question_answering":
        raise UserError(f"answers are predicted as tokens, but {known}", remedy="choose a student of its vocabulary")


def _with_predictions(
    ready: Prepared, model: Model, machine: Machine, display: Display, store: TargetStore | None, *, same: bool
) -> Prepared:
    """Return samples with the teacher's predictions as labels.

    Args:
        ready: the student's samples.
        model: the teacher.
        machine: device and precision.
        display: shows the progress.
        store: what was predicted before.
        same: whether the teacher reads the student's samples; otherwise it reads the examples in its own vocabulary.
    """
    task, backend = ready.recipe.task, TorchBackend(model, machine, display)
    at, evaluated = ready.learner.parts[task.part].at, (ready.split if ready.stops_early else ready.data).held

    def predicted(framed: Framed, examples: Sequence[Any]) -> Framed:
        theirs = framed if same else task.frame(model.tokenizer, examples, model.labels, gold=True)
        compute = partial(backend.logits, task.part)
        logits = compute(theirs.samples) if store is None else stored(store, theirs.samples, at, compute)
        return replace(framed, samples=attach(framed.samples, logits, at))

    found = replace(ready, train=predicted(ready.train, ready.split.train), held=predicted(ready.held, evaluated))
    if store is not None:
        store.flush()
    return found


def stored(
    store: TargetStore, samples: Sequence[Sample], at: str, compute: Callable[[list[Sample]], list[np.ndarray]]
) -> list[np.ndarray]:
    """Return the logits of each sample, (targets, classes), and store those that had to be computed."""
    keys = [sample_key(sample.ids, sample.segments, sample.positions[at]) for sample in samples]
    new = {key: sample for key, sample in zip(keys, samples, strict=True) if key not in store}
    for key, logits in zip(new, compute(list(new.values())), strict=True):
        store.put(key, logits)
    return [store[key][0] for key in keys]


def attach(samples: Sequence[Sample], logits: Sequence[np.ndarray], at: str) -> list[Sample]:
    """Return samples with the logits of their targets as labels.

    Args:
        samples: the samples.
        logits: those of all targets in the order of the samples, in arrays of any lengths, (targets, classes) each.
        at: name of the targets' positions.
    """
    if not samples:
        return []
    rows, ends = np.concatenate(logits), np.cumsum([len(sample.positions[at]) for sample in samples])
    assert len(rows) == ends[-1], "teacher and student predict the same targets"
    own = np.split(rows, ends[:-1])
    return [sample.add(labels={SOFT_TARGETS: some.ravel()}) for sample, some in zip(samples, own, strict=True)]


def _how(lesson: Lesson) -> str:
    """Return what the run does, for the card of its model."""
    files = [*lesson.files.train, *lesson.unlabelled]
    more = f", {counted(lesson.augment, 'variant')} of each example" if lesson.augment else ""
    return f"Distilled from {lesson.teacher} (recipe {lesson.recipe.name}; {', '.join(map(str, files))}{more})"
