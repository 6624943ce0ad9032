"""Losses and accuracies of a learner on prepared batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from unmask.batches.batch import Batch, add_counts
from unmask.objectives.learner import Learner
from unmask.runs.display import Display
from unmask.training.machine import Machine
from unmask.training.processes import Processes


def evaluate(
    learner: Learner,
    batches: Sequence[Batch],
    machine: Machine,
    processes: Processes | None = None,
    display: Display | None = None,
) -> dict[str, float]:
    """Return the means of each objective over its targets, and the weighted sum of losses as `loss`.

    `NAME_loss` is in nats; where the objective classifies there is `NAME_accuracy`, 0 to 1, and `NAME_guess` where
    always giving the same answer is often right. A part without any target is left out. Several processes share the
    batches; `display` shows how far it is.
    """
    processes, display = processes or Processes(), display or Display(quiet=True)
    counts = add_counts(batches)
    sums: dict[str, float] = {}
    was_training = learner.training
    learner.eval()
    with torch.inference_mode():
        for batch in display.count(processes.share(batches), lambda batch: len(batch.tokens.ids)):
            for name, part in learner(batch.to(machine.device)).items():
                values = {"loss": part.sum, **part.metrics}
                for key, value in values.items():
                    sums[f"{name}.{key}"] = sums.get(f"{name}.{key}", 0.0) + float(value)
    learner.train(was_training)
    return summarise(processes.add_up(sums), counts, learner.weights)


def summarise(sums: Mapping[str, float], counts: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """Turn sums over targets ("NAME.loss", "NAME.accuracy") into the means that `evaluate` describes."""
    metrics = {"loss": 0.0}
    for key, value in sums.items():
        name, _, what = key.partition(".")
        if count := counts.get(name):
            metrics[f"{name}_{what}"] = value / count
            if what == "loss":
                metrics["loss"] += weights[name] * value / count
    return metrics
