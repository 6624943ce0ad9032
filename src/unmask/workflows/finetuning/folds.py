"""Settings that are tuned on predictions for examples that were not trained on, where a tenth of them would be too few.

Input: a prepared run with few examples. Output: its task with a temperature and thresholds.

Each of a few models is trained on all examples but a fold, as the run is then trained on all of them, and predicts that
fold. So no example is lost to the training. These models learn from somewhat fewer examples than the run does, and are
less often right, so that its probabilities are rather too timid than too sure.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unmask.data.labelled.identities import identities
from unmask.inference.predictor import Predictor
from unmask.support.durable import read_json, replace_file
from unmask.support.errors import counted
from unmask.support.fingerprint import fingerprint_values
from unmask.support.settings import write
from unmask.tasks.holding_out import ENOUGH, assign_folds, parted
from unmask.tasks.rows import RowTask
from unmask.tasks.task import Task
from unmask.training.machine import Machine
from unmask.training.processes import Processes
from unmask.training.runs.directory import MARK
from unmask.training.runs.display import Display
from unmask.workflows.finetuning.examples import frame_examples
from unmask.workflows.finetuning.prepare import Prepared, finished_model

MOST_SHOWN = 5
"""Number of values of a setting up to which all are printed."""
NUMBER = 5
"""Number of folds."""


def tuned_on_folds(
    ready: Prepared,
    folder: Path,
    train: Callable[[Prepared, Path], None],
    machine: Machine,
    processes: Processes,
    display: Display,
) -> Task:
    """Return the task of a run, tuned on predictions of its folds; read it if an earlier start has done that.

    Args:
        ready: the run before its training.
        folder: where the models of the folds are trained.
        train: trains what was prepared in a run directory, or continues there.
        machine: where the models predict.
        processes: the processes that train together; the main one predicts.
        display: shows the progress.
    """
    task = ready.recipe.task
    place = folder / fingerprint_values([write(ready.recipe), ready.inputs])[:16]
    file = place / "tuned.json"
    tuned: Task | None = None
    if processes.is_main and file.exists():
        tuned = read_json(file, type(task), "remove it")
    if (known := processes.broadcast(tuned)) is not None:
        return known
    if processes.is_main:
        folder.mkdir(exist_ok=True)
        replace_file(folder / MARK, b"")  # if the run ends before its first checkpoint, it may start again with them
    examples: list[Any] = []
    predictions: list[Any] = []
    judged: list[bool] = []  # not by labels that only the fold has, as of a single text: no model could know them
    parts = folds_of(task, ready.split.train)
    for number, held in enumerate(parts, 1):
        fold, rest = _fold(ready, held, number)
        count = counted(len(fold.split.train), "example")
        display.say(f"to calibrate probabilities, model {number} of {len(parts)}, on {count}")
        train(fold, place / str(number))
        if processes.is_main:
            model = finished_model(fold.base, fold.learner, fold.data.labels, fold.recipe.task)
            learned = {label for example in fold.split.train for label in task.labels_of(example)}
            judged += [learned.issuperset(task.labels_of(example)) for example in rest]
            examples += rest
            predictions += Predictor(model, machine, Display(quiet=True)).run(rest)
    if processes.is_main:
        if any(judged):
            examples, predictions = (list(compress(every, judged)) for every in (examples, predictions))
        tuned = task.tune(examples, predictions)
        count = counted(len(examples), "training example")
        display.say(f"tuned on {count}, predicted by models that were not trained on them: {changes(task, tuned)}")
        replace_file(file, msgspec.json.encode(tuned))
    tuned = processes.broadcast(tuned)
    assert tuned is not None
    return tuned


def changes(before: Task, after: Task) -> str:
    """Return the settings in which a tuned task differs, with their values."""
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
    shown = {name: value if isinstance(value, tuple | list) else (value,) for name, value in new.items()}
    return ", ".join(f"{name} {_shown(values)}" for name, values in shown.items() if new[name] != old[name])


def _shown(values: Sequence[float]) -> str:
    """Return numbers as text; of many, one for each label, the least and the greatest."""
    if len(values) <= MOST_SHOWN:
        return ", ".join(f"{number:.4g}" for number in values)
    least, greatest = (f"{number:.4g}" for number in (min(values), max(values)))
    return f"{least if least == greatest else f'from {least} to {greatest}'} for {len(values)} labels"


def folds_of(task: Task, examples: Sequence[Any]) -> list[np.ndarray]:
    """Return which examples each model predicts, (examples,) bool each; no more folds than are enough."""
    assert isinstance(task, RowTask)
    folds = assign_folds(identities(map(task.texts, examples)), task.strata(examples), NUMBER, seed=0)
    chosen: list[np.ndarray] = []
    for number in np.unique(folds):
        if sum(int(part.sum()) for part in chosen) < ENOUGH:
            chosen.append(folds == number)
    return chosen


def _fold(ready: Prepared, held: np.ndarray, number: int) -> tuple[Prepared, list[Any]]:
    """Return a run on the examples that are not held, from the same weights, and those that are."""
    encoder, learner = copy.deepcopy((ready.base.encoder, ready.learner))
    base, labels = replace(ready.base, encoder=encoder), ready.data.labels
    untuned = {"temperature": 1.0, "threshold": 0.5}
    task = msgspec.structs.replace(
        ready.recipe.task,
        **{name: value for name, value in untuned.items() if getattr(ready.recipe.task, name) in (None, "tuned")},
    )
    train, rest = parted(ready.split.train, held)
    data = replace(ready.data, train=train, held=[])
    return replace(
        ready,
        base=base,
        learner=learner,
        recipe=msgspec.structs.replace(ready.recipe, task=task),
        data=data,
        split=data,
        train=frame_examples(task, base, train, labels, "training"),
        held=frame_examples(task, base, [], labels, "evaluation"),
        inputs={**ready.inputs, "fold": str(number)},
    ), rest
