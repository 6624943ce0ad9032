"""Choice between the rule for few labels and fine-tuning of all parameters, by cross-validation on training examples.

Input: a run of a text classifier as the rule for few labels prepares it. Output: the run as it is trained.

Both ways are trained on the same stratified folds, equal texts in one fold, and predict the texts of the fold left out.
These out-of-fold probabilities also give the temperature of the way that is chosen, by which the losses are compared,
too: fine-tuning of all parameters with few examples is too sure, but that is repaired. The rule for few labels stays
unless fine-tuning is right at least as often, and its loss is lower by `MARGIN` standard errors of the paired
differences. The probabilities are kept in RUN/search/choice.json: an interrupted choice is continued with them.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from unmask.data.batches.batch import total_length
from unmask.data.labelled.identities import identities
from unmask.data.labelled.labelled_file import Row
from unmask.inference.predictor import Predictor
from unmask.support import __version__
from unmask.support.durable import replace_file
from unmask.support.messages import argument
from unmask.support.settings import write
from unmask.tasks.classification import Classification
from unmask.tasks.gold_labels import label_numbers
from unmask.tasks.holding_out import assign_folds, parted
from unmask.tasks.tuning import at_temperature, find_temperature
from unmask.training.machine import Machine
from unmask.training.runs.directory import MARK, SEARCHED
from unmask.training.runs.display import Display
from unmask.training.settings import FORWARDS_PER_STEP
from unmask.workflows.finetuning.examples import Examples
from unmask.workflows.finetuning.job import FewLabels, FinetuningJob
from unmask.workflows.finetuning.prepare import Prepared, finished_model, load_initial, prepare_with

FOLDS = 4
"""Maximum number of folds: the choice then takes at most three times as long as fine-tuning of all parameters."""
MARGIN = 1.0
"""By how many standard errors the mean loss of all parameters is to be lower."""
MOST_OPERATIONS = 2e14
"""Maximum number of floating-point operations of the choice: minutes on a desktop computer."""
RECORD = "choice.json"
_TINY = float(np.finfo(np.float32).tiny)

Train = Callable[[Prepared, Path], object]
"""Trains what was prepared, in a directory that is removed then."""


class Outcome(NamedTuple):
    """What the out-of-fold probabilities say of two ways, the first of which is the rule for few labels.

    Attributes:
        second: whether the second way is better.
        accuracies: the percentage of examples whose most probable label is right, of each way.
        temperatures: the temperature of each way with the smallest loss.
    """

    second: bool
    accuracies: tuple[float, float]
    temperatures: tuple[float, float]


def compare_ways(first: np.ndarray, second: np.ndarray, gold: np.ndarray) -> Outcome:
    """Compare two ways by their probabilities.

    Args:
        first, second: probabilities of examples that were not trained on, (examples, labels).
        gold: the index of each label, (examples,).
    """
    accuracies, temperatures, losses = [], [], []
    for probabilities in (first, second):
        temperature = find_temperature(probabilities, gold)
        calibrated = at_temperature(probabilities, temperature)[np.arange(len(gold)), gold]
        losses.append(-np.log(np.maximum(calibrated, _TINY)))
        temperatures.append(temperature)
        accuracies.append(100 * float((probabilities.argmax(1) == gold).mean()))
    gains = losses[0] - losses[1]  # (examples,)
    error = float(gains.std(ddof=1)) / len(gains) ** 0.5
    better = accuracies[1] >= accuracies[0] and float(gains.mean()) > MARGIN * error
    return Outcome(better, (accuracies[0], accuracies[1]), (temperatures[0], temperatures[1]))


def choose(
    job: FinetuningJob, ready: Prepared, out: Path, train: Train, machine: Machine, display: Display, *, resume: bool
) -> Prepared:
    """Return the run as it is to be trained, with a line about the choice.

    Args:
        job: the task, the model, the files and the settings.
        ready: the run by the rule for few labels.
        out: the directory of the run, or of all runs that share the choice.
        train: trains a fold.
        machine: device and precision.
        display: shows the progress.
        resume: whether a run is resumed: if no choice was recorded for it, none is made.

    Raises:
        UserError: the remaining examples of a fold cannot be trained on.
    """
    task, few = ready.recipe.task, ready.few
    if few is None or not isinstance(task, Classification):
        return ready
    folder = out / SEARCHED
    if resume and not (folder / RECORD).exists():
        return ready
    full = prepare_with(job, ready.base, ready.data, None, machine)
    texts, gold = identities(map(task.texts, ready.data.train)), label_numbers(ready.data.train, ready.data.labels)
    number = min(FOLDS, *Counter(dict(zip(texts, gold, strict=True)).values()).values())
    if reason := _impossible(full, number):
        return replace(ready, choice=f"{describe_rule(few)}; not compared with that: {reason}")
    folds = assign_folds(texts, gold, number, seed=0)
    record = _Record(
        folder,
        {"recipes": _recipes(ready, full), **ready.inputs, "precision": machine.precision, "unmask": __version__},
    )
    display.say(f"comparing two ways of training by {number}-fold cross-validation on the training examples")
    parts = [parted(ready.data.train, folds == fold) for fold in range(number)]

    def probabilities(name: str, way: FewLabels | None) -> np.ndarray:
        """Return the out-of-fold probabilities of a way, (examples, labels)."""
        out_of_fold = np.empty((len(gold), len(ready.data.labels)))
        for fold, (inside, outside) in enumerate(parts):
            key = f"{name}/{fold}"
            if key not in record.rows:
                examples = replace(ready.data, train=inside, held=[])
                record.add(key, _predict_fold(job, examples, outside, way, folder / "fold", train, machine))
            out_of_fold[folds == fold] = record.rows[key]
        return out_of_fold

    outcome = compare_ways(probabilities("few", few), probabilities("full", None), np.array(gold))
    chosen = full if outcome.second else ready
    return replace(_calibrated(job, chosen, outcome.temperatures[outcome.second]), choice=_describe(few, outcome))


def _impossible(full: Prepared, folds: int) -> str:
    """Return why the ways are not compared; empty: they are."""
    if folds < 2:
        return "a label has a single text"
    weights = sum(value.numel() for group in full.base.encoder.layer_groups[1:] for value in group.parameters())
    tokens = (full.recipe.budget.epochs or 0) * total_length(full.train.samples)
    operations = (folds - 1) * FORWARDS_PER_STEP * 2 * weights * tokens
    if operations > MOST_OPERATIONS:
        return f"that would take {operations:.0e} operations, more than {MOST_OPERATIONS:.0e}"
    return ""


def _recipes(*runs: Prepared) -> list[str]:
    """Return the recipes of runs whatever their seeds, so that runs with several seeds share a choice."""
    return [write(msgspec.structs.replace(run.recipe, seed=0)) for run in runs]


def _predict_fold(
    job: FinetuningJob,
    examples: Examples,
    outside: Sequence[Row],
    way: FewLabels | None,
    folder: Path,
    train: Train,
    machine: Machine,
) -> np.ndarray:
    """Return the probabilities of the labels of the examples outside, after training in a folder that is removed."""
    ready = prepare_with(job, load_initial(job.start, job.settings), examples, way, machine)
    shutil.rmtree(folder, ignore_errors=True)  # of an interrupted choice
    train(ready, folder)
    shutil.rmtree(folder)
    model = finished_model(ready.base, ready.learner, examples.labels, ready.recipe.task)
    predictions = Predictor(model, replace(machine, precision="float32"), Display(quiet=True)).run(outside)
    return np.array([[prediction.scores[label] for label in examples.labels] for prediction in predictions])


def _calibrated(job: FinetuningJob, ready: Prepared, temperature: float) -> Prepared:
    """Return a run with a temperature, if its training makes probabilities too sure; the regression's are not.

    It is never below 1: that few examples are all right is no reason to be surer than the classifier.
    """
    if ready.recipe.frozen or "task.temperature" in job.settings or temperature <= 1:
        return ready
    task = msgspec.structs.replace(ready.recipe.task, temperature=float(f"{temperature:.3g}"))
    return replace(ready, recipe=msgspec.structs.replace(ready.recipe, task=task))


def describe_rule(few: FewLabels) -> str:
    """Return what the rule for few labels does, and how to have it otherwise."""
    return f"{_rule(few)}; to train {'longer' if few.epochs else 'it'}: {argument('frozen', False)}"


def _rule(few: FewLabels) -> str:
    if few.epochs:
        return f"a logistic regression on the encoder's features, then {few.epochs:g} epochs of all parameters"
    of = " of the differences between the two texts" if few.downstream == "difference" else ""
    return f"the encoder stays frozen under a logistic regression{of}"


def _describe(few: FewLabels, outcome: Outcome) -> str:
    """Return what was compared, and what was chosen."""
    first, second = (f"{accuracy:.0f} %" for accuracy in outcome.accuracies)
    if outcome.second:
        name = f"the regression and {few.epochs:g} epochs" if few.epochs else "a regression on frozen vectors"
        return (
            f"fine-tuning of all parameters: {second} of held-out training examples right, {name} {first}; "
            f"to keep the encoder frozen: {argument('frozen', True)}"
        )
    return (
        f"{_rule(few)}: {first} of held-out training examples right, fine-tuning of all parameters {second}, which is "
        f"not clearly better; to train {'longer' if few.epochs else 'it'}: {argument('frozen', False)}"
    )


class _Record:
    """The probabilities by way and fold that a choice has computed; those of other inputs are removed."""

    def __init__(self, folder: Path, inputs: Mapping[str, object]) -> None:
        self.path = folder / RECORD
        mark = msgspec.json.encode(inputs)
        if (folder / MARK).exists() and (folder / MARK).read_bytes() != mark:
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / MARK, mark)
        self.rows: dict[str, list[list[float]]] = (
            msgspec.json.decode(self.path.read_bytes()) if self.path.exists() else {}
        )

    def add(self, key: str, probabilities: np.ndarray) -> None:
        """Add the probabilities of a fold, (examples, labels)."""
        self.rows[key] = probabilities.tolist()
        replace_file(self.path, msgspec.json.encode(self.rows))
