"""Training with weights, gradients and moments divided among processes: FSDP2 of torch.

This is stage 3 of ZeRO (Rajbhandari et al. 2020, section 5.3), as in Zhao et al. 2023 (PyTorch FSDP).

Input: a learner with all of its weights, on each process's device. Output: the interface of `Replicas`. Each process
has some rows of each parameter in float32 (training/shards.py). The rows of a layer are gathered, in the precision of
the machine, just before the layer computes, and again before its backward pass; its gradients are summed in float32
after each micro-batch, and each process keeps its rows. Everything outside the layers, such as the embeddings and the
heads, is gathered for the whole pass. With a mesh of several copies ("hybrid") the rows are divided within each copy,
and gradients are summed over the copies, too.

All processes gather at once, so they must compute equally many micro-batches: `rounds`. A parameter has a gradient if
it has one in some process (as with `Replicas`). In bf16 on a CPU the gradient of a table of embeddings is sparse, and
is made dense before it is summed.

While the learner is sharded, its own parameters are placeholders of the right shapes, filled with NaN.
"""

from __future__ import annotations

import copy
import gc
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from unmask.data.batches.batch import Batch
from unmask.objectives.learner import Learner, Loss
from unmask.support.environment import whole
from unmask.support.errors import UserError
from unmask.support.messages import setting
from unmask.training.connection import TIMEOUT
from unmask.training.machine import Machine, return_memory
from unmask.training.processes import Processes
from unmask.training.replicas import Replicas, weighted
from unmask.training.settings import Distribution
from unmask.training.shards import Shards

LOCAL_SIZE = "LOCAL_WORLD_SIZE"
"""Environment variable of torchrun: number of processes on this host."""
NEEDED = "set_reduce_scatter_unused_params"
"""The newest method of FSDP2 that is used, of torch 2.13."""


class ShardedReplicas(Replicas):
    """See the module; use `shard` to create it.

    Args:
        learner: holds the float32 weights, which become placeholders; those of the main process count.
        machine: machine whose precision is used.
        processes: the processes that train together.
        copies: number of groups of processes that each have all rows.
    """

    def __init__(self, learner: Learner, machine: Machine, processes: Processes, copies: int = 1) -> None:
        self.learner = learner
        self.processes = processes
        self.device = machine.device
        for value in learner.state_dict().values():
            _receive(value, processes)
        if machine.device.type == "cpu":
            return_memory()
        self.copy = _moved(learner, machine.dtype)
        shapes = {name: parameter.shape for name, parameter in self.copy.named_parameters()}
        self._mesh, rows = _mesh(machine.device, processes.size, copies)
        policy = MixedPrecisionPolicy(cast_forward_inputs=False)
        if machine.dtype != torch.float32:
            policy = MixedPrecisionPolicy(machine.dtype, torch.float32, cast_forward_inputs=False)
        self._used: set[str] = set()
        units = [*self.copy.separate_layers, self.copy]
        for unit, places in zip(units, _places(self.copy, units), strict=True):
            sharded: Any = fully_shard(unit, mesh=self._mesh, mp_policy=policy)
            sharded.set_gradient_divide_factor(1.0)
            sharded.set_force_sum_reduction_for_comms(True)  # gloo has no other reduction
            sharded.set_reduce_scatter_unused_params(True, recurse=False)
            _watch(sharded, places, self._used)
        self._names: dict[Any, str] = {parameter: name for name, parameter in self.copy.named_parameters()}
        with torch.no_grad():
            parts = {name: parameter.to_local() for parameter, name in self._names.items()}
        self.shards: Shards = Shards(shapes, parts, rows, processes)

    @property
    def trained(self) -> Learner:
        """See `Replicas`."""
        return self.copy

    @property
    def copies(self) -> dict[Tensor, Tensor]:
        """See `Replicas`."""
        return {}

    def leave(self, written: Iterable[Tensor]) -> None:
        """See `Replicas`; there are none."""

    def rounds(self, micro_batches: int) -> int:
        """See `Replicas`; the largest number of all processes."""
        return int(self.processes.all_reduce_max([micro_batches])[0])

    def backward(self, batch: Batch, factors: Mapping[str, float], *, last: bool) -> Loss:
        """See `Replicas`; all processes compute a micro-batch at once."""
        with self.processes.watched(computing=True):
            loss: Loss = self.copy(batch)
            weighted(loss, factors).backward()  # type: ignore[no-untyped-call]
        return loss

    def reduce(self) -> None:
        """Pass this process's rows of the gradients on to `shards.parts`."""
        trained = [(parameter, name) for parameter, name in self._names.items() if parameter.requires_grad]
        counts = self.processes.all_reduce_sum([float(name in self._used) for _, name in trained])
        for (parameter, name), count in zip(trained, counts, strict=True):
            grad: Any = parameter.grad
            self.shards.parts[name].grad = grad.to_local() if count else None
        self.drop()

    def drop(self) -> None:
        """See `Replicas`."""
        for parameter in self._names:
            parameter.grad = None
        self._used.clear()

    def receive(self) -> None:
        """Do nothing, because the main process's weights are those that were divided."""

    def refresh(self, *, stepped: bool = False) -> None:
        """Let the next pass gather what is outside the layers, which after an evaluation is still there as it was."""
        cast(FSDPModule, self.copy).reshard()

    def parameters(self) -> dict[str, Tensor]:
        """See `Replicas`; this process's rows."""
        return self.shards.parts

    def state_dict(self) -> dict[str, Tensor]:
        """Return this process's rows of the float32 weights, and all buffers."""
        return {name: self.shards.parts.get(name, value) for name, value in self.learner.state_dict().items()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load what `state_dict` returned."""
        mine = self.state_dict()
        if mine.keys() != state.keys() or any(value.shape != state[name].shape for name, value in mine.items()):
            raise RuntimeError("other names or shapes")
        for name, value in mine.items():
            value.copy_(state[name])
        self.refresh()

    def part(self, name: str, tensor: Tensor) -> Tensor:
        """See `Replicas`."""
        return self.shards.take(name, tensor)

    def restore(self) -> None:
        """See `Replicas`; one parameter after the other is gathered."""
        for name, parameter in self.learner.named_parameters():
            tensor = self.shards.gather(name, self.shards.parts[name])
            if tensor is not None:
                parameter.data = tensor.to(self.device)

    def close(self) -> None:
        """See `Replicas`: the modules of FSDP2 refer to the process groups and are part of reference cycles.

        The mesh refers to them, too, and torch's caches of layouts keep it.
        """
        self.shards.close()
        vars(self._mesh).get("_pg_registry", {}).clear()
        self._names.clear()
        del self.copy
        gc.collect()


def shard(learner: Learner, machine: Machine, processes: Processes, how: Distribution, streams: int) -> Replicas:
    """Return the replicas of a learner whose weights are divided among several processes.

    Args:
        learner: the learner.
        machine: machine that the run computes on.
        processes: the processes that train together.
        how: "shard": among all processes; "hybrid": among those of each host.
        streams: number of streams of the source.

    Raises:
        UserError: the learner cannot be sharded, or not in this way.
    """
    remedy = f"pass {setting('batch.distribute', 'replicate')}"
    if not hasattr(FSDPModule, NEEDED):
        raise UserError(f"torch {torch.__version__} cannot shard: 2.13 is needed", remedy=f"install it, or {remedy}")
    if streams:
        raise UserError("a model that carries state from step to step cannot be sharded", remedy=remedy)
    if learner.joint:
        raise UserError("an objective that compares all texts of a step cannot be sharded", remedy=remedy)
    names = {name for name, _ in learner.named_parameters()}
    scalars = [name for name, parameter in learner.named_parameters() if not parameter.ndim]
    repeated = learner.state_dict().keys() - names - {name for name, _ in learner.named_buffers()}
    if unfit := sorted({*scalars, *repeated}):
        raise UserError(
            f"the weight {unfit[0]} cannot be sharded: it {'is a scalar' if unfit[0] in scalars else 'has two names'}",
            remedy=remedy,
        )
    if how == "shard":
        return ShardedReplicas(learner, machine, processes)
    local = whole(LOCAL_SIZE, processes.size)
    sizes = set(processes.gather(local))
    if len(sizes) > 1 or local < 2 or processes.size % local:
        listed = ", ".join(map(str, sorted(sizes)))
        raise UserError(
            f"weights cannot be sharded within each host: the hosts have {listed} processes ({LOCAL_SIZE})",
            remedy=f"start the same number, at least 2, on each, or pass {setting('batch.distribute', 'shard')}",
        )
    return ShardedReplicas(learner, machine, processes, processes.size // local)


def _mesh(device: torch.device, size: int, copies: int) -> tuple[DeviceMesh, Any]:
    """Return the mesh of all processes, and the group of those that have all rows together with this one."""
    if copies == 1:
        world: Any = dist.group.WORLD
        return DeviceMesh.from_group(world, device.type), world
    ranks, limit = torch.arange(size).view(copies, -1), timedelta(seconds=whole(TIMEOUT, 600))
    groups = []
    for table in (ranks.T, ranks):  # of the processes with the same rows, and of those with all rows
        for members in table.tolist():  # all processes take part in creating each group
            group = dist.new_group(members, timeout=limit)
            if dist.get_rank() in members:
                groups.append(group)
    return DeviceMesh.from_group(groups, device.type, mesh=ranks, mesh_dim_names=("copies", "rows")), groups[1]


def _receive(tensor: Tensor, processes: Processes) -> None:
    """Replace a tensor by that of the main process."""
    if tensor.numel():
        received = tensor.detach().cpu().contiguous()
        processes.broadcast_into(received)
        tensor.detach().copy_(received)


def _moved(learner: Learner, dtype: torch.dtype) -> Learner:
    """Return a copy of a learner that has its weights, which become placeholders; its buffers are in a dtype."""
    parameters = [*learner.parameters()]
    memo: dict[int, Any] = {id(value): nn.Parameter(value.data, value.requires_grad) for value in parameters}
    moved = copy.deepcopy(learner, memo)
    for value in parameters:
        value.data = value.data.new_full((1,) * value.ndim, math.nan).expand(value.shape)
    for buffer in moved.buffers():
        buffer.data = buffer.data.to(dtype) if buffer.is_floating_point() else buffer.data
    return moved


def _places(learner: Learner, units: Sequence[nn.Module]) -> list[dict[str, tuple[nn.Module, str]]]:
    """Return where the trained parameters of each unit are, by name; those of inner units are not in outer ones."""
    prefixes = {module: name for name, module in learner.named_modules()}
    seen, places = set[nn.Module](), []
    for unit in units:
        modules = [module for module in unit.modules() if module not in seen]
        seen.update(modules)
        places.append(
            {
                f"{prefixes[module]}.{name}".removeprefix("."): (module, name)
                for module in modules
                for name, parameter in module.named_parameters(recurse=False)
                if parameter.requires_grad
            }
        )
    return places


def _watch(unit: nn.Module, places: Mapping[str, tuple[nn.Module, str]], used: set[str]) -> None:
    """Let the parameters of a unit note in `used` that they have a gradient, and make it dense if it is sparse."""

    def arrive(name: str, parameter: Tensor) -> None:
        used.add(name)
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.to_dense()

    def register(unit: nn.Module, inputs: object) -> None:
        """Register the hooks in the first forward pass, from which on the whole parameters exist."""
        for name, (module, attribute) in places.items():
            getattr(module, attribute).register_post_accumulate_grad_hook(partial(arrive, name))
        handle.remove()

    handle = unit.register_forward_pre_hook(register)  # called after that of `fully_shard`
