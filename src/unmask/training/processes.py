"""Data-parallel training under torchrun: several processes train one model, each with all of its weights.

A step's samples are the same for any number of processes. Each process takes its share of them; counts, gradients
(training/replicas.py) and metrics are summed over the processes, so that all of them take the same optimizer step. Only
the main process writes files.

`StepFeed` returns the steps of a run for one process: the samples of each step, its stage, and this process's share of
the samples. Input: a source, the recipe's batch settings, and the run's progress. Output: `Step`s, made in advance by
workers if there are any.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from threading import Thread
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from unmask.data.batches.batch import Sample
from unmask.data.batches.sources import Cursor, Source, stage_at
from unmask.data.batches.steps import Step, Steps
from unmask.support.environment import rank_and_size, whole
from unmask.support.errors import UnmaskError, UserError
from unmask.support.messages import argument, setting
from unmask.training.checkpoint import Progress
from unmask.training.settings import BatchSettings

TIMEOUT = "UNMASK_TIMEOUT"
"""Environment variable: seconds to wait for a process that does not respond (default 600)."""
SEARCH_SECONDS = 5
"""Time to search for the missing process after a failure."""
BUCKET = 1 << 23
"""Approximate number of elements per all-reduce."""

_T = TypeVar("_T")


class Processes:
    """The processes that train together, as seen by one of them; the context manager connects it to the others.

    Args:
        rank: number of this process, from 0.
        size: number of processes.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self._control: Any = None  # process group for small messages, on the CPU
        self._store: Any = None  # key-value store shared by all processes

    @classmethod
    def launched(cls) -> Processes:
        """Return the processes that torchrun started; without torchrun a single process.

        Raises:
            UserError: torchrun's variables are inconsistent.
        """
        return cls(*rank_and_size())

    def __enter__(self) -> Processes:
        """Connect to the other processes.

        Raises:
            UnmaskError: the others did not connect in time.
        """
        if self.size > 1:
            seconds = whole(TIMEOUT, 600)
            try:
                self._connect(timedelta(seconds=seconds))
            except RuntimeError as error:
                missing = f" (missing: {', '.join(map(str, self._missing()))})" if self._store is not None else ""
                raise UnmaskError(
                    f"process {self.rank} of {self.size} could not connect to all others within {seconds:.0f} s"
                    f"{missing}: check that all were started and none has exited ({str(error).splitlines()[0]})"
                ) from error
        return self

    def _connect(self, limit: timedelta) -> None:
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        store, _, _ = next(iter(rendezvous("env://", timeout=limit)))
        # its functions keep the process group that exists when DDP imports it, and thereby the group's threads
        import_module("torch.distributed.nn.functional")

        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # torchrun keeps what earlier attempts stored
        self._store = dist.PrefixStore(f"attempt-{attempt}", store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=self._store, rank=self.rank, world_size=self.size, timeout=limit)
        self._control = dist.new_group(backend="gloo", timeout=limit)

    def __exit__(self, *error: object) -> None:
        """Disconnect, and wait for gloo's threads.

        After a collective operation they still release its tensors, for which they need the GIL, and a thread that asks
        for the GIL while the interpreter shuts down aborts the process. They end with the last reference to the group.
        """
        if self.size > 1:
            dist.destroy_process_group()
            self._control = self._store = None

    @property
    def is_main(self) -> bool:
        """Whether this is the main process, which alone writes files."""
        return self.rank == 0

    def share(self, items: Sequence[_T]) -> list[_T]:
        """Return this process's share: every `size`-th item, so that sorted items are distributed evenly."""
        return list(items[self.rank :: self.size])

    def gather(self, value: _T) -> list[_T]:
        """Return the value of each process, in the order of their ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self.watched():
            dist.all_gather_object(values, value, group=self._control)
        return values

    def broadcast(self, value: _T) -> _T:
        """Return the value of the main process."""
        return self.gather(value)[0]

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
            dist.all_reduce(numbers, op, group=self._control)
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
            dist.gather(data, parts, group=self._control)
        return [part.view(tensor.dtype).view(tensor.shape) for part in parts or []]

    def barrier(self) -> None:
        """Wait for all other processes."""
        if self.size > 1:
            with self.watched():
                dist.barrier(group=self._control)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Convert the failure of a collective operation into an error that names the missing processes.

        Raises:
            UnmaskError: another process has exited, or did not respond in time.
        """
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            missing = ", ".join(map(str, self._missing())) or "none, but the connection failed"
            raise UnmaskError(
                f"process {self.rank} of {self.size} stops because another process has exited or does not respond "
                f"(missing: {missing}); continue with the same command and {argument('resume', True)}"
            ) from error

    def _missing(self) -> list[int]:
        """Report this process as alive in the store, and return the ranks that have not done so in `SEARCH_SECONDS`."""
        missing = [0]  # the process that hosts the store, and is at fault if it cannot be read
        store = self._store

        def search() -> None:
            silent, limit = list(range(self.size)), time.monotonic() + SEARCH_SECONDS
            with suppress(RuntimeError):
                store.set(f"lives/{self.rank}", "")
                while silent and time.monotonic() < limit:
                    silent = [rank for rank in silent if not store.check([f"lives/{rank}"])]
                    time.sleep(0.05)
                missing[:] = silent

        thread = Thread(target=search, daemon=True)  # may block forever if the process that hosts the store hangs
        thread.start()
        thread.join(SEARCH_SECONDS + 1)
        if self.rank == 0:
            time.sleep(1)  # so that the others can still read the store
        return missing


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


class StepFeed:
    """Iterator over the steps from the run's current progress; call `close` whenever the progress is changed.

    Args:
        source: source of samples.
        batch: the recipe's batch settings.
        prepare: masks a sample and counts its targets.
        processes: the processes that share each step.
        workers: number of processes that make batches in advance.

    Raises:
        UserError: the source has streams, and a batch is not one window of each stream.
    """

    def __init__(
        self,
        source: Source,
        batch: BatchSettings,
        prepare: Callable[[Sample], Sample],
        processes: Processes,
        workers: int,
    ) -> None:
        if source.streams and batch.sequences != source.streams:
            step_size = (
                f"batch.sequences is {batch.sequences}" if batch.sequences else f"batch.tokens is {batch.tokens}"
            )
            raise UserError(
                f"layout.streams is {source.streams}, and each step reads one window of every stream, but {step_size}",
                remedy=f"pass {setting('batch.sequences', source.streams)}",
            )
        self.source = source
        self.batch = batch
        self.prepare = prepare
        self.processes = processes
        self.workers = workers
        self.total = 0
        self._steps: Iterator[Step] | None = None

    def close(self) -> None:
        """Discard the steps that were made in advance, and end the workers; the next step starts others."""
        self._steps = None

    def next(self, progress: Progress) -> Step:
        """Return the next step.

        Raises:
            UserError: it has fewer samples than there are processes.
        """
        if self._steps is None:
            self.total = progress.total
            steps = Steps(self.take, self.processes.share, self.prepare, progress.micro_tokens)
            self._steps = steps.stream(progress.step, progress.cursor, self.workers)
        step = next(self._steps)
        if step.sequences < self.processes.size:
            enlarge = "layout.streams and batch.sequences" if self.source.streams else "batch.tokens or batch.sequences"
            raise UserError(
                f"a step of {step.sequences} sequences cannot be shared by {self.processes.size} processes",
                remedy=f"start fewer processes, or enlarge {enlarge}",
            )
        return step

    def take(self, step: int, cursor: Cursor) -> tuple[list[Sample], Cursor]:
        """Return the samples of a step from its stage, or from the cursor's stage while steps are timed."""
        if self.total:
            cursor = self.source.enter(cursor, stage_at(self.source.stages, step, self.total))
        samples, cursor = self.source.take(cursor, tokens=self.batch.tokens, sequences=self.batch.sequences)
        done = step / self.total if self.total else 0.0
        return [sample.at(done) for sample in samples], cursor
