"""Data-parallel training under torchrun: several processes train one model, each with all or some of its weights.

A step's samples are the same for any number of processes. Each process takes its share of them; counts, gradients
(training/replicas.py) and metrics are summed over the processes, so that all of them take the same optimizer step. Only
the main process reads and writes the run directory; the others receive what it has read (`broadcast_tensors`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from heapq import heapreplace
from traceback import clear_frames
from types import TracebackType
from typing import Any, ClassVar, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from unmask.support.environment import is_out_of_memory, rank_and_size, whole
from unmask.support.errors import UnmaskError
from unmask.training.connection import TIMEOUT, Connection, LostProcessError

BUCKET = 1 << 23
"""Approximate number of elements per all-reduce."""

_T = TypeVar("_T")


def divide(costs: Sequence[float], number: int) -> list[list[int]]:
    """Divide items among a number of processes, which then take about as long; return the indices of each one's.

    A step ends when the slowest process has ended, so that every n-th of the samples by length, which gives one process
    the longer one each time, costs time. Instead each item, the most expensive first, goes to the process that has
    least to do so far (Graham 1969, which is at most a third slower than the best division, and mostly within a
    thousandth of the mean).

    Args:
        costs: cost of each item.
        number: number of processes.

    Returns:
        The indices of the items of each process, in order.
    """
    parts: list[list[int]] = [[] for _ in range(number)]
    loads = [(0.0, process) for process in range(number)]  # a heap
    for index in sorted(range(len(costs)), key=costs.__getitem__, reverse=True):
        load, process = loads[0]
        parts[process].append(index)
        heapreplace(loads, (load + costs[index], process))
    return [sorted(part) for part in parts]


class Processes:
    """The processes that train together, as seen by one of them; the context manager connects it to the others.

    Contexts may be nested: the outermost one connects and disconnects.

    Args:
        rank: number of this process, from 0.
        size: number of processes.
    """

    _connected: ClassVar[Processes | None] = None

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self._connection: Any = None
        self._depth = 0
        self._led = 0

    @classmethod
    def launched(cls) -> Processes:
        """Return the processes that torchrun started, as they are connected; without torchrun a single process.

        Raises:
            UserError: torchrun's variables are inconsistent.
        """
        return cls._connected or cls(*rank_and_size())

    def __enter__(self) -> Processes:
        """Connect to the other processes.

        Raises:
            UserError: torchrun's variables are incomplete.
            LostProcessError: the others did not connect in time.
        """
        if self.size > 1 and not self._depth:
            self._connection = Connection(self.rank, self.size, whole(TIMEOUT, 600))
            Processes._connected = self
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect; after an error, leave the reason for the others."""
        self._depth -= 1
        if self.size > 1 and not self._depth:
            if error is not None and not isinstance(error, LostProcessError):
                self._connection.fail(error.message if isinstance(error, UnmaskError) else repr(error))
            self._connection.close()
            self._connection = Processes._connected = None

    @property
    def is_main(self) -> bool:
        """Whether this is the main process, which alone reads and writes the run directory."""
        return self.rank == 0

    def share(self, items: Sequence[_T], costs: Sequence[float] | None = None) -> list[_T]:
        """Return this process's share, in order.

        Args:
            items: the items of all processes.
            costs: how long each takes, in any unit, so that all processes take about as long (see `divide`); None:
                every `size`-th item is this process's, so that sorted items are distributed evenly.
        """
        if costs is None or self.size == 1:
            return list(items[self.rank :: self.size])
        return [items[index] for index in divide(costs, self.size)[self.rank]]

    def gather(self, value: _T) -> list[_T]:
        """Return the value of each process, in the order of their ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self.watched():
            dist.all_gather_object(values, value, group=self._connection.control)
        return values

    def broadcast(self, value: _T, source: int = 0) -> _T:
        """Return the value of the main process, or of that with the rank `source`."""
        if self.size == 1:
            return value
        values = [value if self.rank == source else None]
        with self.watched():
            dist.broadcast_object_list(values, source, group=self._connection.control)
        return cast(_T, values[0])

    def broadcast_tensors(
        self, tensors: Mapping[str, Tensor], source: int = 0, keep: Callable[[str, Tensor], Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Return the tensors of the main process, or of that with the rank `source`, on the CPU.

        Args:
            tensors: the tensors by name.
            source: rank of the process that has them.
            keep: maps each name and tensor to what is returned of it, before the next one is sent; None: all of it.
        """
        keep = keep or (lambda name, tensor: tensor)
        if self.size == 1:
            return {name: keep(name, tensor) for name, tensor in tensors.items()}
        received = {}
        described = {name: (value.dtype, value.shape) for name, value in tensors.items()}
        for name, (dtype, shape) in self.broadcast(described, source).items():
            mine = self.rank == source
            tensor = tensors[name].detach().cpu().contiguous() if mine else torch.empty(shape, dtype=dtype)
            if tensor.numel():
                self.broadcast_into(tensor.view(-1).view(torch.uint8), source)
            received[name] = keep(name, tensor)
        return received

    def broadcast_into(self, tensor: Tensor, source: int = 0) -> None:
        """Replace a tensor on the CPU by that of the main process, or of that with the rank `source`."""
        if self.size > 1:
            with self.watched():
                dist.broadcast(tensor, source, group=self._connection.control)

    def lead(self, work: Callable[[], _T]) -> _T:
        """Return what the main process computes, however long it takes; the others wait as long as it is alive.

        Raises:
            LostProcessError: in the other processes, if it has failed.
        """
        if self.size == 1:
            return work()
        self._led += 1
        name, value = f"led/{self._led}", None
        if self.is_main:
            with self._connection.leading(name):
                value = work()
        else:
            self._connection.follow(name)
        return cast(_T, self.broadcast(value))

    def all_reduce(self, sums: Mapping[str, Any]) -> dict[str, Any]:
        """Return sums of numbers over the processes, by name; a process may lack some names."""
        if self.size == 1:
            return dict(sums)
        total: dict[str, Any] = {}
        for part in self.gather(dict(sums)):
            for name, value in part.items():
                total[name] = total.get(name, 0) + value
        return total

    def all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        """Return elementwise sums over the processes, which all pass the same number of values."""
        return self._reduce(values, dist.ReduceOp.SUM)

    def all_reduce_max(self, values: Sequence[float]) -> list[float]:
        """Return elementwise maxima over the processes, which all pass the same number of values."""
        return self._reduce(values, dist.ReduceOp.MAX)

    def _reduce(self, values: Sequence[float], op: Any) -> list[float]:
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)  # (values,)
        with self.watched():
            dist.all_reduce(numbers, op, group=self._connection.control)
        reduced: list[float] = numbers.tolist()
        return reduced

    def all_reduce_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by their sums over the processes, which all pass tensors of the same shapes."""
        if self.size == 1:
            return
        with self.watched():
            for bucket in _buckets(tensors):
                flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
                dist.all_reduce(flat)
                for tensor, part in zip(bucket, torch.split(flat, [tensor.numel() for tensor in bucket]), strict=True):
                    tensor.copy_(part.view_as(tensor))

    def collect(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all processes, of equal shape and dtype, on the CPU; [] in all but the main process."""
        if self.size == 1:
            return [tensor.cpu()]
        data = tensor.cpu().contiguous().view(-1).view(torch.uint8)  # any dtype
        parts = [torch.empty_like(data) for _ in range(self.size)] if self.is_main else None
        with self.watched():
            dist.gather(data, parts, group=self._connection.control)
        return [part.view(tensor.dtype).view(tensor.shape) for part in parts or []]

    def barrier(self) -> None:
        """Wait for all other processes."""
        if self.size > 1:
            with self.watched():
                dist.barrier(group=self._connection.control)

    @contextmanager
    def watched(self, *, computing: bool = False) -> Iterator[None]:
        """Convert the failure of a collective operation into an error that names the missing processes.

        Args:
            computing: whether other operations may fail, too: an error stays as it is if no process is missing.

        Raises:
            LostProcessError: another process has failed, exited, or did not respond in time.
        """
        try:
            yield
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            clear_frames(error.__traceback__)  # they refer to the groups, which `lost` closes
            lost = self._connection.lost()
            if computing and not lost.missing:
                raise
            raise lost from error


class Sums:
    """Sums of named numbers over the processes in every step; the names are exchanged in the first step only.

    Args:
        processes: the processes that train together; each calls `all_reduce` once per step.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.names: list[str] | None = None

    def all_reduce(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the sums by name; a process may lack some of the names.

        Raises:
            ValueError: a name did not occur in the first step.
        """
        if self.processes.size == 1:
            return dict(values)
        if self.names is None:
            self.names = sorted(set().union(*self.processes.gather(sorted(values))))
        if unknown := values.keys() - set(self.names):
            raise ValueError(f"{sorted(unknown)} did not occur in the first step")
        sums = self.processes.all_reduce_sum([values.get(name, 0.0) for name in self.names])
        return dict(zip(self.names, sums, strict=True))


def _buckets(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        bucket.append(tensor)
        size += tensor.numel()
        if size >= BUCKET:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket
