"""Losses and accuracies of a learner on prepared batches, and early stopping.

`Patience` ends a run when the held-out loss has stopped falling, and returns to the weights with the lowest loss.
Input: the held-out losses that the run has logged, so that a resumed run decides as if it had never been interrupted.
The weights of the lowest loss are part of each checkpoint (training/checkpoint.py). The data that stop a run must not
be the data it is reported on: fine-tuning holds out part of the training examples for this
(workflows/finetuning/run_job.py).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unmask.data.batches.batch import Batch
from unmask.objectives.learner import Learner, Loss
from unmask.support import transfer
from unmask.support.capabilities import widest_float
from unmask.support.errors import UnmaskError, UserError
from unmask.training.carry import CarryTable
from unmask.training.checkpoint import copied
from unmask.training.machine import Machine
from unmask.training.processes import Processes
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display

if TYPE_CHECKING:
    from unmask.training.replicas import Replicas


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
    prediction is often right have its accuracy as `NAME_baseline`. Objectives without targets are omitted; without any
    target, `loss` is not a number. Several processes share the batches; `display` shows the progress. If the batches
    are windows of streams, each stream is read in order by one process, starting from the initial state. If the learner
    is `sharded`, all processes compute equally often, and what a process has computed of more than its own batches does
    not count.
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
            label, value = f"{name}.{key}", value.to(widest_float(value.device))
            sums[label] = sums[label] + value if label in sums else value


def as_numbers(sums: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the sums of `add_parts` as numbers, by a single copy from the device."""
    return dict(zip(sums, transfer.to_host([*sums.values()]), strict=True))


def summarize(sums: Mapping[str, float], counts: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """Convert sums over targets ("NAME.loss", "NAME.accuracy") into the means described in `evaluate`."""
    means = dict[str, float]()
    losses = list[float]()
    for key, value in sums.items():
        name, _, metric = key.partition(".")
        if count := counts.get(name):
            means[f"{name}_{metric}"] = value / count
            if metric == "loss":
                losses.append(weights[name] * value / count)
    return {"loss": sum(losses) if losses else math.nan, **means}


def is_finite(metrics: Mapping[str, float]) -> bool:
    """Return whether all means of `summarize` are finite, which is true if there was no target."""
    return all(math.isfinite(value) for name, value in metrics.items() if name != "loss")


class NotFiniteError(UnmaskError):
    """The loss or the weights of a run are not finite; a search for settings goes on without it."""


class Patience:
    """Early stopping of a run; all processes call its methods together.

    Args:
        run: run whose metrics are read.
        evaluations: number of evaluations without a lower loss that ends the run; None: never.
        processes: the processes that train together; the main process decides.

    Attributes:
        best: what this process has of the weights with the lowest loss, on the CPU; never changed, but replaced.
    """

    def __init__(self, run: RunDirectory, evaluations: int | None, processes: Processes) -> None:
        self.run = run
        self.evaluations = evaluations
        self.processes = processes
        self.best: Mapping[str, Tensor] = {}

    def update(self, replicas: Replicas) -> None:
        """Keep the weights if the last held-out loss is lower than all before."""
        losses = self._losses()
        if losses and _lowest(losses) == [*losses][-1]:
            self.best = copied(replicas.state_dict())

    def resume(self, replicas: Replicas, step: int) -> None:
        """Keep the weights of the step that a run is resumed from if they have the lowest loss, otherwise `best`.

        They are not in `best` if that step was saved before it was evaluated.

        Raises:
            UserError: the weights of another step have the lowest loss, and were not saved.
        """
        lowest = _lowest(self._losses())
        if lowest is None:
            self.best = {}
        elif lowest == step:
            self.best = copied(replicas.state_dict())
        elif not self.best:
            raise UserError(
                f"the weights of step {lowest}, which have the lowest held-out loss, were not saved",
                file=self.run.path,
                remedy="resume with the budget.patience of the start of the run, or start another one",
            )

    def is_over(self) -> bool:
        """Return whether the last `evaluations` evaluations were all worse than an earlier one."""
        losses = [*self._losses().values()]
        return bool(losses) and len(losses) - 1 - losses.index(min(losses)) >= (self.evaluations or math.inf)

    def take_best(self, replicas: Replicas) -> int | None:
        """Load the weights with the lowest loss and return their step; return None if there are none."""
        lowest = _lowest(self._losses())
        if lowest is not None:
            replicas.load_state_dict(self.best)
        return lowest

    def _losses(self) -> dict[int, float]:
        """Return the held-out losses by step, in order, or {} without early stopping; one that is no number is inf."""
        if not self.evaluations:
            return {}
        lines = self.run.read_metrics("heldout") if self.processes.is_main else []
        losses = {line["step"]: math.inf if line["loss"] is None else line["loss"] for line in lines}
        return self.processes.broadcast(losses)


def _lowest(losses: Mapping[int, float]) -> int | None:
    """Return the first step with the lowest loss; None if no loss is finite."""
    step = min(losses, key=losses.__getitem__, default=None)
    return None if step is None or losses[step] == math.inf else step
