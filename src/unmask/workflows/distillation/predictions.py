"""The teacher's predictions as labels of samples: where they are stored, or where the teacher reads texts otherwise.

Input: the samples of a student, the examples that they were made of, and the teacher. Output: the same samples with the
logits of their targets as labels of `soft_targets`, so that no teacher runs in training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.inference.backend import TorchBackend
from unmask.model.model import Model
from unmask.objectives.soft_targets import NAME as SOFT_TARGETS
from unmask.tasks.task import Framed
from unmask.training.machine import Machine
from unmask.training.runs.display import Display
from unmask.workflows.distillation.targets import TargetStore, sample_key
from unmask.workflows.finetuning.prepare import Prepared


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
