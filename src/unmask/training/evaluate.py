"""Losses and accuracies of a learner on prepared batches, and early stopping.

`Patience` ends a run when the held-out loss has stopped falling, and returns to the weights with the lowest loss.
Input: the held-out losses that the run has logged, so that a resumed run decides as if it had never been interrupted.
The weights of the lowest loss are stored in RUN/checkpoints/best.safetensors. The data that stop a run must not be the
data it is reported on: fine-tuning holds out part of the training examples for this (workflows/finetuning/run_job.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from unmask.data.batches.batch import Batch
from unmask.objectives.learner import Learner, Loss
from unmask.support import transfer
from unmask.support.capabilities import widest_float
from unmask.support.durable import replace_file
from unmask.support.errors import UnmaskError, UserError
from unmask.support.fingerprint import fingerprint
from unmask.support.messages import argument
from unmask.training.carry import CarryTable
from unmask.training.machine import Machine
from unmask.training.processes import Processes
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display


def evaluate(
    learner: Learner,
    batches: Sequence[Batch],
    machine: Machine,
    processes: Processes | None = None,
    display: Display | None = None,
    *,
    sharded: bool = False,
) -> dict[str, float]:
    """Return each objective's mean loss and metrics over its targets, and the weighted sum of the losses as `loss`.

    `NAME_loss` is in nats. Objectives that classify also have `NAME_accuracy`, 0 to 1, and those for which a constant
    prediction is often right have its accuracy as `NAME_baseline`. Objectives without targets are omitted. Several
    processes share the batches; `display` shows the progress. If the batches are windows of streams, each stream is
    read in order by one process, starting from the initial state. If the learner is `sharded`, all processes compute
    equally often, and what a process has computed of more than its own batches does not count.
    """
    processes, display = processes or Processes(), display or Display(quiet=True)
    counts = Counter[str]()  # batches may be of different objectives
    for batch in batches:
        counts.update(batch.counts)
    sums: dict[str, Tensor] = {}
    was_training = learner.training
    learner.eval()
    mine = _share(batches, processes)
    most = int(processes.all_reduce_max([len(mine)])[0]) if sharded else len(mine)
    carry = CarryTable(1 + max((int(batch.streams.max()) for batch in mine if batch.streams is not None), default=0))
    with ExitStack() as stack:
        if sharded:  # FSDP2 trains with the tensors of the first pass
            stack.enter_context(processes.watched(computing=True))
            stack.enter_context(torch.no_grad())
        else:
            stack.enter_context(torch.inference_mode())
        for batch in display.count(mine, lambda batch: len(batch.tokens.ids)):
            batch = carry.attach(learner.plan(batch).to(machine.device), learner)
            loss = learner(batch)
            carry.stage(batch, loss.carry)
            carry.commit()
            add_parts(sums, loss)
        for _ in range(most - len(mine)):
            learner(learner.plan(batches[0]).to(machine.device))
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
    """Return the sums of `add_parts` as numbers, by a single copy from the device."""
    return dict(zip(sums, transfer.to_host([*sums.values()]), strict=True))


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


class NotFiniteError(UnmaskError):
    """The loss or the weights of a run are not finite; a search for settings goes on without it."""


def check_finite(loss: float, weights: Mapping[str, Tensor], processes: Processes | None = None) -> None:
    """Check the weights at the end of a run, and a loss that they have.

    Args:
        loss: the loss.
        weights: the weights that this process has.
        processes: the processes that have the weights together, and all call it.

    Raises:
        NotFiniteError: they are not finite.
    """
    finite = math.isfinite(loss) and all(bool(weight.isfinite().all()) for weight in weights.values())
    if (processes or Processes()).all_reduce_max([not finite])[0]:
        raise NotFiniteError(
            "the loss or the weights are not finite at the end, so no model is written; the run and its log are kept: "
            "lower optimizer.learning_rate, and start again in an empty directory"
        )


BEST = "best.safetensors"
FINGERPRINT = "fingerprint"
"""Key of the file's metadata for the fingerprint of the weights."""


class HasState(Protocol):
    """An object with weights: the replicas of a learner."""

    def collect(self) -> dict[str, Tensor]:
        """Return the whole weights by name in the main process."""
        ...

    def part(self, name: str, tensor: Tensor) -> Tensor:
        """Return what this process has of a whole weight."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> object:
        """Load what this process has of the weights."""
        ...


class Patience:
    """Early stopping of a run.

    Args:
        run: run whose metrics are read.
        evaluations: number of evaluations without a lower loss that ends the run; None: never.
        processes: the processes that train together; the main process decides.
    """

    def __init__(self, run: RunDirectory, evaluations: int | None, processes: Processes) -> None:
        self.run = run
        self.evaluations = evaluations
        self.processes = processes

    def update(self, learner: HasState) -> None:
        """Store the weights if the last held-out loss is lower than all before; all processes call it together."""
        weights = learner.collect() if self.evaluations else {}
        if self.evaluations and self.processes.is_main:
            *earlier, last = self._losses()
            if last < min(earlier, default=math.inf):
                _write(self.run.checkpoints / BEST, {name: value.cpu() for name, value in weights.items()})

    def is_over(self) -> bool:
        """Return whether the last `evaluations` evaluations were all worse than an earlier one."""
        if not self.evaluations:
            return False
        losses = self._losses() if self.processes.is_main else []
        waited = len(losses) - 1 - losses.index(min(losses)) if losses else 0
        return self.processes.broadcast(waited >= self.evaluations)

    def take_best(self, learner: HasState) -> int | None:
        """Load the weights with the lowest loss and return their step; return None without early stopping.

        All processes must call it; the main one reads the weights.

        Raises:
            UserError: they are missing or damaged.
        """
        if not self.evaluations:
            return None
        losses = self._losses() if self.processes.is_main else []
        lowest = self.processes.broadcast(min(losses, default=math.inf))
        if lowest == math.inf:
            return None
        best = _read(self.run.checkpoints / BEST) if self.processes.is_main else {}
        learner.load_state_dict(self.processes.broadcast_tensors(best, keep=learner.part))
        lines = self.run.read_metrics("heldout") if self.processes.is_main else []
        return self.processes.broadcast(int(lines[losses.index(lowest)]["step"]) if lines else 0)

    def _losses(self) -> list[float]:
        """Return the held-out losses in order; a loss that is not finite is logged as null and returned as infinity."""
        losses = [line["loss"] for line in self.run.read_metrics("heldout")]
        return [math.inf if loss is None else loss for loss in losses]


def _write(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write weights, with their fingerprint as metadata."""
    try:
        replace_file(path, safetensors.torch.save(dict(weights), {FINGERPRINT: fingerprint(weights)}))
    except OSError as error:
        raise UnmaskError(
            f"{path}: the best weights could not be written ({error.strerror or error}); earlier checkpoints are "
            f"intact: free some space, then continue with {argument('resume', True)}"
        ) from error


def _read(path: Path) -> dict[str, Tensor]:
    """Read weights that `_write` wrote."""
    remedy = "without the best weights, the run must be started again in an empty directory"
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            wanted = (file.metadata() or {}).get(FINGERPRINT)
    except (OSError, safetensors.SafetensorError) as error:
        raise UserError(f"the best weights cannot be read ({error})", file=path, remedy=remedy) from error
    if fingerprint(weights) != wanted:
        raise UserError("the file was altered", file=path, remedy=remedy)
    return weights
