"""Losses and accuracies of a learner on prepared batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from unmask.data.batches.batch import Batch, add_counts
from unmask.objectives.learner import Learner, Loss
from unmask.support.capabilities import widest_float
from unmask.training.carry import CarryTable
from unmask.training.machine import Machine
from unmask.training.processes import Processes
from unmask.training.runs.display import Display


def evaluate(
    learner: Learner,
    batches: Sequence[Batch],
    machine: Machine,
    processes: Processes | None = None,
    display: Display | None = None,
) -> dict[str, float]:
    """Return each objective's mean loss and metrics over its targets, and the weighted sum of the losses as `loss`.

    `NAME_loss` is in nats. Objectives that classify also have `NAME_accuracy`, 0 to 1, and those for which a constant
    prediction is often right have its accuracy as `NAME_guess`. Objectives without targets are omitted. Several
    processes share the batches; `display` shows the progress. If the batches are windows of streams, each stream is
    read in order by one process, starting from the initial state.
    """
    processes, display = processes or Processes(), display or Display(quiet=True)
    counts = add_counts(batches)
    sums: dict[str, Tensor] = {}
    was_training = learner.training
    learner.eval()
    mine = _share(batches, processes)
    carry = CarryTable(1 + max((int(batch.streams.max()) for batch in mine if batch.streams is not None), default=0))
    with torch.inference_mode():
        for batch in display.count(mine, lambda batch: len(batch.tokens.ids)):
            batch = carry.attach(batch.to(machine.device), learner)
            loss = learner(batch)
            carry.stage(batch, loss.carry)
            carry.commit()
            add_parts(sums, loss)
    learner.train(was_training)
    return summarize(processes.all_reduce(as_numbers(sums)), counts, learner.weights)


def _share(batches: Sequence[Batch], processes: Processes) -> list[Batch]:
    """Return this process's batches; batches of the same streams stay together."""
    if any(batch.streams is None for batch in batches):
        return processes.share(batches)
    firsts = [int(batch.streams.min()) for batch in batches if batch.streams is not None]
    mine = set(processes.share(sorted(set(firsts))))
    return [batch for batch, first in zip(batches, firsts, strict=True) if first in mine]


def add_parts(sums: dict[str, Tensor], loss: Loss) -> None:
    """Add a batch's sums ("NAME.loss", "NAME.accuracy", ...) to `sums`, in float64 where the device has it."""
    for name, part in loss.items():
        for key, value in {"loss": part.sum.detach(), **part.metrics}.items():
            sums[f"{name}.{key}"] = sums.get(f"{name}.{key}", 0) + value.to(widest_float(value.device))


def as_numbers(sums: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the sums of `add_parts` as numbers, with a single synchronization of the device."""
    values = torch.stack(list(sums.values())).tolist() if sums else []
    return dict(zip(sums, values, strict=True))


def summarize(sums: Mapping[str, float], counts: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """Convert sums over targets ("NAME.loss", "NAME.accuracy") into the means described in `evaluate`."""
    metrics = {"loss": 0.0}
    for key, value in sums.items():
        name, _, metric = key.partition(".")
        if count := counts.get(name):
            metrics[f"{name}_{metric}"] = value / count
            if metric == "loss":
                metrics["loss"] += weights[name] * value / count
    return metrics
