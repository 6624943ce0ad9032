"""Early stopping: end when the held-out loss has stopped falling, and return to the weights with the lowest loss.

Input: the held-out losses that the run has logged, so that a resumed run decides as if it had never been interrupted.
The weights of the lowest loss are stored in RUN/checkpoints/best.safetensors. The data that stop a run must not be the
data it is reported on: fine-tuning holds out part of the training examples for this (workflows/finetuning/run.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import safetensors
import safetensors.torch
from torch import Tensor

from unmask.support.durable import replace_file
from unmask.support.errors import UnmaskError, UserError
from unmask.support.fingerprint import fingerprint
from unmask.training.processes import Processes
from unmask.training.runs.directory import RunDirectory

BEST = "best.safetensors"
FINGERPRINT = "fingerprint"
"""Key of the file's metadata for the fingerprint of the weights."""


class HasState(Protocol):
    """An object with weights: a module, or the replicas of one."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the weights by name."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> object:
        """Load what `state_dict` returned."""
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
        """Store the weights if the last held-out loss is the lowest; all processes must call it after an evaluation."""
        weights = learner.state_dict() if self.evaluations else {}
        if self.evaluations and self.processes.is_main:
            losses = self._losses()
            if losses[-1] == min(losses) < math.inf:
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

        Raises:
            UserError: they are missing or damaged.
        """
        losses, lines = self._losses(), self.run.read_metrics("heldout")
        if not self.evaluations or min(losses, default=math.inf) == math.inf:
            return None
        learner.load_state_dict(_read(self.run.checkpoints / BEST))
        return int(lines[losses.index(min(losses))]["step"])

    def _losses(self) -> list[float]:
        """Return the held-out losses in order; a loss that is not finite is logged as null and returned as infinity."""
        found = [line["loss"] for line in self.run.read_metrics("heldout")]
        return [math.inf if loss is None else loss for loss in found]


def _write(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write weights, with their fingerprint as metadata."""
    try:
        replace_file(path, safetensors.torch.save(dict(weights), {FINGERPRINT: fingerprint(weights)}))
    except OSError as error:
        raise UnmaskError(
            f"{path}: the best weights could not be written ({error.strerror or error}); earlier checkpoints are "
            "intact: free some space, then continue with --resume"
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
