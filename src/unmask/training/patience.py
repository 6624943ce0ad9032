"""Early stopping: end when the held-out loss has not fallen for a while, and go back to where it was lowest.

In: the held-out losses that the run has logged, so that a resumed run decides as one that was never stopped. The
weights of the lowest loss lie in RUN/checkpoints/best.safetensors. What stopped a run is no data to report it on:
fine-tuning holds a part of the training examples out for it (finetuning/finetune.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import safetensors.torch
from torch import Tensor

from unmask.durable import sync
from unmask.runs.directory import RunDirectory
from unmask.training.processes import Processes

BEST = "best.safetensors"


class HasState(Protocol):
    """Holds weights: a module, or the replicas of one."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return them by name."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> object:
        """Take what `state_dict` returned."""
        ...


class Patience:
    """Watches a run.

    Args:
        run: whose metrics are read.
        evaluations: how many without a lower loss end the run; None: never.
        processes: those that train together; the first decides.
    """

    def __init__(self, run: RunDirectory, evaluations: int | None, processes: Processes) -> None:
        self.run = run
        self.evaluations = evaluations
        self.processes = processes

    def evaluated(self, learner: HasState) -> None:
        """Keep the weights if the newest loss is the lowest; all processes call it."""
        weights = learner.state_dict() if self.evaluations else {}
        if self.evaluations and self.processes.is_main:
            losses = self._losses()
            if losses[-1] == min(losses) < math.inf:
                path, aside = self.run.checkpoints / BEST, self.run.checkpoints / f".writing-{BEST}"
                safetensors.torch.save_file({name: value.cpu() for name, value in weights.items()}, aside)
                sync(aside)
                aside.replace(path)

    def is_over(self) -> bool:
        """Say whether the last evaluations were all worse than one before them."""
        if not self.evaluations:
            return False
        losses = self._losses() if self.processes.is_main else []
        waited = len(losses) - 1 - losses.index(min(losses)) if losses else 0
        return self.processes.broadcast(waited >= self.evaluations)

    def take_best(self, learner: HasState) -> int | None:
        """Load the weights of the lowest loss; return the step they are of, or None where nobody watched."""
        if not self.evaluations or not (self.run.checkpoints / BEST).exists():
            return None
        learner.load_state_dict(safetensors.torch.load_file(self.run.checkpoints / BEST))
        losses, lines = self._losses(), self.run.read_metrics("heldout")
        return int(lines[losses.index(min(losses))]["step"])

    def _losses(self) -> list[float]:
        """Return the held-out losses in order; one that is not finite is logged as null, and is the worst."""
        found = [line["loss"] for line in self.run.read_metrics("heldout")]
        return [math.inf if loss is None else loss for loss in found]
