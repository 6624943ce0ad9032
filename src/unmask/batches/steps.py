"""What one optimiser step learns from, step after step, made in this process or ahead of it in others.

In: a source and what prepares a sample. Out: `Step`s. Each is a pure function of its number and of the cursor before
it, so that the number of workers changes nothing: every worker walks the whole order (which is cheap), and masks and
collates every n-th step.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from unmask.batches.batch import Batch, Sample, add_counts, collate, split
from unmask.batches.sources import Cursor
from unmask.errors import UnmaskError

Take = Callable[[int, Cursor], tuple[list[Sample], Cursor]]
"""Number of a step and cursor before it to its samples and the cursor after it."""


@dataclass(frozen=True)
class Step:
    """One process's share of a step.

    Attributes:
        micro_batches: its samples, split so that each micro-batch fits into memory.
        counts: targets in these micro-batches, by objective.
        tokens, sequences: of the whole step, over all processes.
        cursor: where the order stands after it.
    """

    micro_batches: tuple[Batch, ...]
    counts: Mapping[str, int]
    tokens: int
    sequences: int
    cursor: Cursor

    def pin_memory(self) -> Step:
        """Return it in memory that a GPU copies from by itself; the DataLoader calls this."""
        return replace(
            self, micro_batches=tuple(micro_batch.map(Tensor.pin_memory) for micro_batch in self.micro_batches)
        )


@dataclass(frozen=True)
class Steps:
    """How steps are made.

    Attributes:
        take: a step's samples, those of all processes.
        share: this process's part of them, which come sorted by length or by stream; with streams the same part in
            each step.
        prepare: masks a sample and counts its targets.
        micro_tokens: most tokens in a micro-batch.
    """

    take: Take
    share: Callable[[list[Sample]], list[Sample]]
    prepare: Callable[[Sample], Sample]
    micro_tokens: int

    def make(self, samples: list[Sample], cursor: Cursor) -> Step:
        """Prepare this process's share of the samples taken."""
        share = [self.prepare(sample) for sample in self.share(sorted(samples, key=_rank))]
        return Step(
            micro_batches=tuple(collate(micro_batch) for micro_batch in split(share, self.micro_tokens))
            if share
            else (),
            counts=add_counts(share) if share else {},
            tokens=sum(map(len, samples)),
            sequences=len(samples),
            cursor=cursor,
        )

    def stream(self, number: int, cursor: Cursor, workers: int = 0) -> Iterator[Step]:
        """Give all steps from one on, made ahead by `workers` processes, or here where that is 0.

        Workers are forked: the system must be able to (see training/machine.py).
        """
        stream = _Stream(self, number, cursor)
        if not workers:
            return iter(stream)
        loader: DataLoader[Step] = DataLoader(
            stream,
            batch_size=None,
            num_workers=workers,
            multiprocessing_context="fork",  # what makes steps cannot be pickled
            worker_init_fn=_start,
            pin_memory=torch.cuda.is_available(),
        )
        return iter(loader)


class _Stream(IterableDataset[Step]):
    def __init__(self, steps: Steps, number: int, cursor: Cursor) -> None:
        self.steps, self.number, self.cursor = steps, number, cursor

    def __iter__(self) -> Iterator[Step]:
        worker: Any = get_worker_info()
        mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        cursor = self.cursor
        for place in count():
            samples, cursor = self.steps.take(self.number + place, cursor)
            if place % workers == mine:
                yield self.steps.make(samples, cursor)


def _rank(sample: Sample) -> int:
    return len(sample) if sample.stream is None else sample.stream


def _start(worker: int) -> None:
    """Leave Ctrl-C to the process that trains; it ends its workers itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def tell_lost_workers() -> Iterator[None]:
    """Turn the death of a worker, which torch raises from a signal handler and so anywhere, into a clear error.

    Raises:
        UnmaskError: a worker was killed.
    """
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise UnmaskError(
            f"a process that makes batches is gone ({str(error).splitlines()[0]}); the checkpoints are intact: go on "
            "with --resume, with fewer --workers if memory is short"
        ) from error
