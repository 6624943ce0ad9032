"""Several processes that train one model together, each with all of its weights (data parallel), under torchrun.

A step's samples are the same for any number of processes. Each process takes its share of them; counts, gradients
(training/replicas.py) and sums are added up, so that all processes take the same optimiser step. The first one alone
writes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Thread
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from unmask.errors import UnmaskError

TIMEOUT = "UNMASK_TIMEOUT"
"""Environment variable: seconds after which a process that does not answer is given up (default 600)."""
SEARCH_SECONDS = 5
"""How long is looked for the process that is missing, once something has failed."""
BUCKET = 1 << 23
"""About how many numbers are added up at once."""

_T = TypeVar("_T")


class Processes:
    """This process among those that train together. While entered it is connected to the others.

    Args:
        rank: its number, from 0.
        size: how many there are.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self._control: Any = None  # the group for small messages, on the CPU
        self._store: Any = None  # names and values that all of them see

    @classmethod
    def launched(cls) -> Processes:
        """Return what torchrun says; without it this process is alone."""
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))

    def __enter__(self) -> Processes:
        """Connect.

        Raises:
            UnmaskError: the others were not there in time.
        """
        if self.size > 1:
            seconds = float(os.environ.get(TIMEOUT, "600"))
            try:
                self._connect(timedelta(seconds=seconds))
            except RuntimeError as error:
                missing = f" (missing: {', '.join(map(str, self._missing()))})" if self._store is not None else ""
                raise UnmaskError(
                    f"process {self.rank} of {self.size} did not meet all the others within {seconds:.0f} s{missing}: "
                    f"were all of them started, and did none break off? ({str(error).splitlines()[0]})"
                ) from error
        return self

    def _connect(self, limit: timedelta) -> None:
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        store, _, _ = next(iter(rendezvous("env://", timeout=limit)))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # torchrun keeps what a former one has stored
        self._store = dist.PrefixStore(f"attempt-{attempt}", store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=self._store, rank=self.rank, world_size=self.size, timeout=limit)
        self._control = dist.new_group(backend="gloo", timeout=limit)

    def __exit__(self, *error: object) -> None:
        if self.size > 1:
            dist.destroy_process_group()

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def share(self, items: Sequence[_T]) -> list[_T]:
        """Return this process's part: every `size`-th item, so that sorted items are dealt out evenly."""
        return list(items[self.rank :: self.size])

    def gather(self, value: _T) -> list[_T]:
        """Return the value of each process, in their order."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        with self.watched():
            dist.all_gather_object(found, value, group=self._control)
        return found

    def broadcast(self, value: _T) -> _T:
        """Return the value of the first process."""
        return self.gather(value)[0]

    def all_reduce(self, sums: Mapping[str, Any]) -> dict[str, Any]:
        """Add numbers up by name; a process may lack some."""
        if self.size == 1:
            return dict(sums)
        total: dict[str, Any] = {}
        for part in self.gather(dict(sums)):
            for name, value in part.items():
                total[name] = total.get(name, 0) + value
        return total

    def all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        """Return sums over the processes, each of which gives as many numbers, in the same order."""
        return self._reduce(values, dist.ReduceOp.SUM)

    def all_reduce_max(self, values: Sequence[float]) -> list[float]:
        """Return the largest of the processes' numbers, each of which gives as many, in the same order."""
        return self._reduce(values, dist.ReduceOp.MAX)

    def _reduce(self, values: Sequence[float], op: Any) -> list[float]:
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)  # (values,)
        with self.watched():
            dist.all_reduce(numbers, op, group=self._control)
        found: list[float] = numbers.tolist()
        return found

    def all_reduce_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors, the same ones in each process, by their sums over the processes."""
        if self.size == 1:
            return
        with self.watched():
            for bucket in _buckets(tensors):
                flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
                dist.all_reduce(flat)
                for tensor, part in zip(bucket, torch.split(flat, [tensor.numel() for tensor in bucket]), strict=True):
                    tensor.copy_(part.view_as(tensor))

    def collect(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensor of each process, all of one shape and type, on the CPU of the first one; [] in others."""
        if self.size == 1:
            return [tensor.cpu()]
        data = tensor.cpu().contiguous().view(-1).view(torch.uint8)  # whatever the type
        found = [torch.empty_like(data) for _ in range(self.size)] if self.is_main else None
        with self.watched():
            dist.gather(data, found, group=self._control)
        return [part.view(tensor.dtype).view(tensor.shape) for part in found or []]

    def barrier(self) -> None:
        """Wait for all the others."""
        if self.size > 1:
            with self.watched():
                dist.barrier(group=self._control)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Say who is missing when a collective operation fails.

        Raises:
            UnmaskError: another process is gone, or did not answer in time.
        """
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            missing = ", ".join(map(str, self._missing())) or "none, but the connection failed"
            raise UnmaskError(
                f"process {self.rank} of {self.size} stops, as another one is gone or hangs (missing: {missing}); "
                "go on with the same command and --resume"
            ) from error

    def _missing(self) -> list[int]:
        """Sign the list of those that live, and return who has not done so after `SEARCH_SECONDS`."""
        missing = [0]  # who keeps the list, and is to blame where it cannot be read

        def look() -> None:
            found, limit = list(range(self.size)), time.monotonic() + SEARCH_SECONDS
            with suppress(RuntimeError):
                self._store.set(f"lives/{self.rank}", "")
                while found and time.monotonic() < limit:
                    found = [rank for rank in found if not self._store.check([f"lives/{rank}"])]
                    time.sleep(0.05)
                missing[:] = found

        looking = Thread(target=look, daemon=True)  # a process that hangs does not answer, however long one waits
        looking.start()
        looking.join(SEARCH_SECONDS + 1)
        if self.rank == 0:
            time.sleep(1)  # let the others read
        return missing


class Sums:
    """Sums of named numbers over the processes, step after step; the names are agreed on in the first step.

    Args:
        processes: each calls `all_reduce` once a step.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self.names: list[str] | None = None

    def all_reduce(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the sums by name; a process may lack some of the names.

        Raises:
            ValueError: a name was not there in the first step.
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
