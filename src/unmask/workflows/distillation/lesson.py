"""A task distillation's lesson: the student, the teacher and the examples, with the teacher's predictions as labels.

Input: files, and the teacher. Output: `Examples` to train on and to evaluate on (labeled ones, texts that the teacher
labels, and variants of both), as samples with the logits of their targets as labels of `soft_targets`, so that no
teacher runs in training. The logits are stored, also where teacher and student read texts otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.labelled.columns import refuse_weights
from unmask.data.labelled.duplicates import MOST_SEARCHED, overlap
from unmask.data.labelled.table import Source
from unmask.inference.backend import TorchBackend
from unmask.inference.fill import no_masked_lm
from unmask.inference.predictor import Predictor
from unmask.model.model import Model, load_model
from unmask.objectives.soft_targets import NAME as SOFT_TARGETS
from unmask.recipes.recipe import Recipe
from unmask.support.errors import UserError, check_count, counted, refuse_idle
from unmask.support.messages import argument, setting
from unmask.support.settings import Overrides
from unmask.tasks.holding_out import describe_overlap, parted
from unmask.tasks.task import Framed, Task
from unmask.tasks.unlabelled import describe_damaged, read_source
from unmask.training.machine import Machine
from unmask.training.runs.display import Display
from unmask.workflows.distillation.augment import Proposer, augment
from unmask.workflows.distillation.student import check_start
from unmask.workflows.distillation.targets import TargetStore, sample_key
from unmask.workflows.finetuning.examples import HOLD_OUT_SEED, Examples, choose_tenth, drawn
from unmask.workflows.finetuning.job import LabelledFiles
from unmask.workflows.finetuning.prepare import Prepared

ELSEWHERE = ("frozen", "downstream", "reset")
"""Settings of fine-tuning that students do not have."""


@dataclass(frozen=True)
class Lesson:
    """A student's task, and from whom it learns it.

    Attributes:
        recipe: the shape of the student, and the objectives that learn from a teacher.
        teacher: fine-tuned MODEL to learn from.
        files: labeled files to train on and to evaluate on.
        unlabelled: files of texts, or of examples without labels, which the teacher labels.
        init: MODEL that the student continues from; None: it begins with weights of the teacher.
        layers: number of layers of the student, whose other sizes are then those of the teacher.
        augment: number of variants of each training example; 0: none.
        masked_lm: MODEL with a masked-LM head that proposes words for them; None: the teacher's own head, if any.
        targets: directory of the teacher's predictions, which are computed only once; None: they are not stored.
        settings: settings that override the defaults, by dotted key.
        allow_pickle: whether models may contain pickled weights.
        examples: number of labeled examples to learn from, drawn at random with the seed; None: all.
    """

    recipe: Recipe
    teacher: str | Path
    files: LabelledFiles
    unlabelled: Sequence[Source] = ()
    init: str | Path | None = None
    layers: int | None = None
    augment: int = 0
    masked_lm: str | Path | None = None
    targets: str | Path | None = None
    settings: Overrides = field(default_factory=dict)
    allow_pickle: bool = False
    examples: int | None = None

    def check(self) -> None:
        """Check whatever can be checked before any file is read.

        Raises:
            UserError: nothing is given to train on, or an option has no effect.
        """
        if not self.files.train and not self.unlabelled:
            raise UserError(
                "there is nothing to learn from",
                remedy=(
                    f"pass {argument('train')}, {argument('unlabelled')}, {argument('corpus')} or {argument('text')}"
                ),
            )
        refuse_weights(self.files.columns, "a student imitates its teacher on all examples alike")
        check_count("examples", self.examples)
        if not self.files.train:
            refuse_idle(f"without {argument('train')}, whose examples it counts", examples=self.examples is not None)
        check_count("augment", self.augment, 0)
        if not self.augment:
            refuse_idle(f"without {argument('augment')}", masked_lm=self.masked_lm)
        check_start(self.init, self.layers)
        for key, value in self.settings.items():
            if key.split(".")[0] in ELSEWHERE:
                raise UserError(f"{setting(key, value)} is not allowed: students are trained as a whole")


def with_predictions(
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
        of_teacher = framed if same else task.frame(model.tokenizer, examples, model.labels, gold=True)
        compute = partial(backend.logits, task.part)
        logits = compute(of_teacher.samples) if store is None else stored(store, of_teacher.samples, at, compute)
        return replace(framed, samples=attach(framed.samples, logits, at))

    train, held = predicted(ready.train, ready.split.train), predicted(ready.held, evaluated)
    if store is not None:
        store.flush()
    return replace(ready, train=train, held=held)


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
    parts = np.split(rows, ends[:-1])
    return [sample.add(labels={SOFT_TARGETS: targets.ravel()}) for sample, targets in zip(samples, parts, strict=True)]


def read_lesson(lesson: Lesson, task: Task, model: Model, machine: Machine, display: Display) -> Examples:
    """Return the examples to train on and those to evaluate on; texts without labels have those of the teacher.

    Without dev files a tenth of the labeled examples is held out, or if there are none, a tenth of the others.

    Raises:
        UserError: a file cannot be read, or is not suitable for the task.
    """
    files, notes = lesson.files, list[str]()
    read = partial(task.read, columns=files.columns, kind=files.kind, notes=notes)
    train = read(files.train) if files.train else []
    columns = {name: column for name, column in files.columns.items() if name != "label"}
    unlabelled = partial(read_source, task, columns=columns, kind=files.kind, notes=notes)
    texts = list(chain.from_iterable(map(unlabelled, lesson.unlabelled)))
    labelled = task.labelled(texts, Predictor(model, machine, display).run(texts, notes)) if texts else []
    if files.dev:
        held = read(files.dev)
    elif train:
        remedy = f"pass {argument(files.role, 'FILE')}"
        train, held = parted(train, choose_tenth(task, train, task.identities(train), remedy, notes))
    else:
        labelled, held = _hold_out(task, labelled)
        notes.append("scored by how often the student agrees with the teacher: there are no labeled examples")
    train = [*drawn(train, lesson.examples, lesson.settings), *labelled]
    notes += describe_damaged([*train, *held], task.texts)
    common = overlap(task.identities(train), task.identities(held), MOST_SEARCHED)
    told = describe_overlap(common, train, held, files.role if files.dev else "held-out")
    warnings = told if common.equal or common.near else []
    notes += [] if warnings else told
    variants = _variants(lesson, train, model, machine, display, notes) if lesson.augment else []
    origins = [index for index, made in enumerate(variants) for _ in made]
    train += [variant for made in variants for variant in made]
    return Examples(train, held, model.labels, notes, files.in_memory, origins, warnings)


def _variants(
    lesson: Lesson, train: Sequence[Any], model: Model, machine: Machine, display: Display, notes: list[str]
) -> list[list[Any]]:
    """Return variants of each training example; see augment.py."""
    proposing = model
    if lesson.masked_lm is not None:
        proposing = load_model(lesson.masked_lm, allow_pickle=lesson.allow_pickle)
        if "masked_lm" not in proposing.heads:
            raise no_masked_lm(proposing)
    elif "masked_lm" not in model.heads:
        notes.append(
            f"words are replaced by those with similar embeddings, as {lesson.teacher} cannot fill masks; for words "
            f"that fit their context, pass {argument('masked_lm', 'MODEL')}"
        )
    seed = int(lesson.settings.get("seed", 0))
    variants = augment(train, lesson.augment, Proposer(proposing, machine), seed, display)
    notes.append(f"{counted(sum(map(len, variants)), 'variant')} of {counted(len(train), 'training example')}")
    return variants


def _hold_out(task: Task, labelled: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return examples that the teacher labeled, to train on and to evaluate on."""
    try:
        return parted(labelled, task.choose_held(labelled, task.identities(labelled), HOLD_OUT_SEED))
    except UserError as error:
        raise UserError(
            f"no texts can be held out with the labels that the teacher gives them: {error.message}",
            remedy=f"pass labeled examples to score the student on: {argument('dev', 'FILE')}",
        ) from error


def untuned(task: Task) -> Task:
    """Return the task of the teacher without what belongs to its training: regularization, and what was tuned."""
    return msgspec.structs.replace(task, **task.training.tuned)
