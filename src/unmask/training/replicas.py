"""Replicas of the learner in several processes: each computes on its own, and all end a step with the same gradients.

Input: a learner with float32 weights. Output: its gradients, summed over micro-batches and processes; its state for
checkpoints. A loss is a sum divided by a count over all processes (see `Trainer.step`), so gradients are summed and
never averaged. Everything that depends on how weights and gradients are distributed over processes is in this module
and, where each process has only a part of them, in training/sharded_replicas.py.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any
from weakref import ref

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from unmask.data.batches.batch import Batch
from unmask.objectives.learner import Learner, Loss
from unmask.training.machine import Machine
from unmask.training.precision import Working
from unmask.training.processes import Processes
from unmask.training.shards import Shards


class Replicas:
    """Replicas with all weights in every process, whose gradients are summed after the backward pass.

    Args:
        learner: holds the float32 weights, on the machine's device, and their gradients after `backward`.
        machine: machine whose precision is used.
        processes: the processes that train together.

    Attributes:
        copy: the working copy that computes; in float32 the learner itself.
        shards: this process's rows of the weights; None: it has all of them.
    """

    shards: Shards | None = None

    def __init__(self, learner: Learner, machine: Machine, processes: Processes) -> None:
        self.learner = learner
        self.processes = processes
        self.working = Working(learner, machine)
        self.copy = self.working.copy

    @property
    def trained(self) -> Learner:
        """The module whose parameters are trained."""
        return self.learner

    @property
    def copies(self) -> dict[Tensor, Tensor]:
        """By parameter, the copies in 16 bits that an optimizer may write; none if other processes have gradients."""
        return dict(self.working.pairs) if self.processes.size == 1 and self.copy is not self.learner else {}

    def leave(self, written: Iterable[Tensor]) -> None:
        """Leave copies, and the gradients of a step's only micro-batch, to the optimizer."""
        self.working.written = frozenset(written)

    def rounds(self, micro_batches: int) -> int:
        """Return how many micro-batches this process must compute if it has so many in a step."""
        return micro_batches

    def backward(self, batch: Batch, factors: Mapping[str, float], *, last: bool) -> Loss:
        """Compute a micro-batch's loss and add its gradient to the learner's.

        Args:
            batch: the micro-batch, on the machine's device.
            factors: factor of each part's sum.
            last: whether it is this process's last micro-batch of the step.

        Returns:
            The parts of the loss, and the new state of the streams.
        """
        loss: Loss = self.copy(batch)
        weighted(loss, factors).backward()  # type: ignore[no-untyped-call]
        self.working.gather(last=last)
        return loss

    def reduce(self) -> None:
        """Sum the learner's gradients over the processes; if a parameter has a gradient in one, it gets one in all."""
        if self.processes.size == 1:
            return
        trained = [parameter for parameter in self.learner.parameters() if parameter.requires_grad]
        counts = self.processes.all_reduce_sum([float(parameter.grad is not None) for parameter in trained])
        for parameter, count in zip(trained, counts, strict=True):
            if count and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.processes.all_reduce_tensors(parameter.grad for parameter in trained if parameter.grad is not None)

    def drop(self) -> None:
        """Forget gradients that `backward` has computed, and `reduce` has not passed on."""
        for parameter in self.learner.parameters():
            parameter.grad = None

    def close(self) -> None:
        """Release references to the process group, before it is destroyed."""

    def receive(self) -> None:
        """Replace the weights by those of the main process; all processes must call it."""
        if self.processes.size > 1:
            weights = self.processes.broadcast_tensors(self.state_dict())
            if not self.processes.is_main:
                self.load_state_dict(weights)

    def refresh(self, *, stepped: bool = False) -> None:
        """Update the working copy after a change of the learner's weights; see `Working.refresh`."""
        self.working.refresh(stepped=stepped)

    def parameters(self) -> dict[str, Tensor]:
        """Return the float32 parameters that this process has, by name."""
        return dict(self.learner.named_parameters())

    def state_dict(self) -> dict[str, Tensor]:
        """Return the float32 weights that this process has."""
        return self.learner.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load what `state_dict` returned.

        Raises:
            RuntimeError: the names or shapes are others.
        """
        self.learner.load_state_dict(state)
        self.refresh()

    def part(self, name: str, tensor: Tensor) -> Tensor:
        """Return what this process has of a whole weight, or of the optimizer's state of it ("WEIGHT.moment")."""
        return tensor

    def restore(self) -> None:
        """Give the learner of the main process its whole weights at the end; all processes must call it."""


class OverlappedReplicas(Replicas):
    """Replicas whose gradients are summed while the backward pass of the last micro-batch is still running.

    The sums are float32 even if the gradients are bf16: torch's DDP passes its buckets to `_sum`, which adds the
    gradients that `Working` has gathered from the previous micro-batches.
    """

    def __init__(self, learner: Learner, machine: Machine, processes: Processes) -> None:
        super().__init__(learner, machine, processes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # broadcast_buffers has a new name in torch 2.13
            self.parallel = DistributedDataParallel(
                self.copy, broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
            )
        # a weak reference, because Python's garbage collector does not see references from C++
        self.parallel.register_comm_hook(ref(self), lambda owner, bucket: owner()._sum(bucket))
        self._owners = {working: parameter for parameter, working in self.working.pairs}
        self._sums: dict[Tensor, Tensor] = {}

    def backward(self, batch: Batch, factors: Mapping[str, float], *, last: bool) -> Loss:
        """See `Replicas`."""
        if last and self.copy is not self.learner:
            for parameter, working in self.working.pairs:  # DDP needs one wherever this step had one
                working.grad = None if parameter.grad is None else torch.zeros_like(working)
        with nullcontext() if last else self.parallel.no_sync():
            loss: Loss = self.parallel(batch)
            with self.processes.watched() if last else nullcontext():
                weighted(loss, factors).backward()  # type: ignore[no-untyped-call]
        if not last:
            self.working.gather()
        elif self.copy is not self.learner:
            for parameter, working in self.working.pairs:
                parameter.grad = None if working.grad is None else self._sums[working]
                working.grad = None
            self._sums.clear()
        return loss

    def reduce(self) -> None:
        """Do nothing, because `backward` has already summed the gradients."""

    def close(self) -> None:
        """See `Replicas`: DDP refers to the process group and is part of a reference cycle, so it is collected here."""
        del self.parallel
        gc.collect()

    def _sum(self, bucket: Any) -> torch.futures.Future[Tensor]:
        """Sum a bucket of gradients over the processes."""
        if self.copy is self.learner:
            work = dist.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(lambda done: done.value()[0])
        flat, parameters = bucket.buffer().float(), bucket.parameters()
        for working, part in zip(parameters, flat.split([value.numel() for value in parameters]), strict=True):
            gathered = self._owners[working].grad
            self._sums[working] = part.view_as(working)
            if gathered is not None:
                part += gathered.view(-1)
        work = dist.all_reduce(flat, async_op=True)
        return work.get_future().then(lambda done: bucket.buffer())  # `backward` reads the sums instead


def replicate(learner: Learner, machine: Machine, processes: Processes) -> Replicas:
    """Return the replicas of a learner; on GPUs the sums overlap with the backward pass."""
    if processes.size > 1 and machine.device.type == "cuda":
        return OverlappedReplicas(learner, machine, processes)
    return Replicas(learner, machine, processes)


def weighted(loss: Loss, factors: Mapping[str, float]) -> Tensor:
    """Return the sum of the parts of a loss, each multiplied by its factor, ()."""
    return torch.stack([factors[name] * part.sum for name, part in loss.items()]).sum()
