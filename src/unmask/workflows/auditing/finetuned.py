"""What models that are fine-tuned on the other folds say about the labels of a fold.

Input: a model, labeled examples and their folds. Output: the probabilities of the labels of each text or word. Each
model is a run of fine-tuning with its default settings, in a directory where an interrupted audit continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.labelled.labelled_file import TEXTS
from unmask.data.labelled.table import as_sources
from unmask.data.labelled.tagged_sentence import TaggedSentence
from unmask.inference.predictor import Predictor
from unmask.model.model import load_model
from unmask.support.errors import counted
from unmask.tasks.tuning import softmax
from unmask.training.machine import Machine
from unmask.training.runs.display import Display
from unmask.workflows.finetuning.finetune import can_resume
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel, LabelledFiles
from unmask.workflows.finetuning.run_job import run_job


def finetuned_probabilities(
    examples: Sequence[Any],
    labels: Sequence[str],
    folds: np.ndarray,
    *,
    task: str,
    start: InitialModel,
    directory: Path,
    machine: Machine,
    display: Display,
) -> np.ndarray:
    """Return the probability of each label, (texts or words, labels) float64, 0 of those that a model never saw.

    Args:
        examples: texts with their labels, or sentences with their tags.
        labels: those of the task.
        folds: the fold of each example, (examples,) int.
        task: the task, by name.
        start: the model that all of them begin as.
        directory: that of their runs, fold-1, fold-2, …
        machine: device and precision of the training; predictions are computed in float32.
        display: says which fold is left out.
    """
    found: dict[int, np.ndarray] = {}
    several = np.unique(folds)
    for number, fold in enumerate(several, 1):
        held = folds == fold
        others = list(compress(examples, ~held))
        display.say(f"fine-tuning without part {number} of {len(several)}, on {counted(len(others), 'example')}")
        run = directory / f"fold-{number}"
        files = LabelledFiles(as_sources([_record(example) for example in others]))
        job = FinetuningJob(task, start, files, machine=machine, quiet=display.console.quiet, all_examples=True)
        model = load_model(run_job(job, run, resume=can_resume(run, True)))
        columns = [labels.index(label) for label in model.labels]
        predictor = Predictor(model, replace(machine, precision="float32"), display)
        predictions = predictor.run(list(compress(examples, held)))
        for place, prediction in zip(np.flatnonzero(held).tolist(), predictions, strict=True):
            scores = _scores(prediction)
            found[place] = np.zeros((len(scores), len(labels)))
            found[place][:, columns] = scores
    return np.concatenate([found[place] for place in range(len(examples))])


def _record(example: Any) -> dict[str, Any]:
    """Return an example as it is given in memory."""
    if isinstance(example, TaggedSentence):
        return {"words": list(example.words), "tags": list(example.tags)}
    label = example.values["label"] if example.labels is None else list(example.labels)
    return {**{name: example.values[name] for name in TEXTS if name in example.values}, "label": label}


def _scores(prediction: Any) -> np.ndarray:
    """Return the probabilities of the labels of a text, (1, labels), or of its words, (words, labels)."""
    if isinstance(prediction.scores, dict):
        return np.array([list(prediction.scores.values())])
    return softmax(prediction.scores.logits)
