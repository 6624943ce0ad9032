"""The data of each optimizer step, prepared in this process or ahead of time in worker processes.

Input: a source, and a function that prepares a sample. Output: `Step`s. Each is a pure function of its number and of
the cursor before it, so the number of workers does not affect the result: every worker iterates over the whole order,
for which it cuts all text by the lengths of its sentences alone, and reads, masks and collates this process's share of
every n-th step.
"""

from __future__ import annotations

import gc
import io
import pickle
import signal
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from unmask.data.batches.batch import Batch, Prepare, add_counts, collate, split
from unmask.data.batches.samples import Samples
from unmask.data.batches.sources import Cursor
from unmask.support.errors import UnmaskError
from unmask.support.messages import argument

Take = Callable[[int, Cursor], tuple[Samples, Cursor]]
"""Maps the number of a step and the cursor before it to its samples and the cursor after it."""


@dataclass(frozen=True)
class Step:
    """One process's share of a step.

    Attributes:
        micro_batches: its samples, split so that each micro-batch fits into memory.
        counts: number of targets in these micro-batches, by objective.
        tokens, sequences: numbers of tokens and sequences in the whole step, over all processes.
        stage: index of the run's stage.
        cursor: cursor after the step.
        digest: CRC-32 of the lengths of all sequences of the step, which all processes have cut alike.
    """

    micro_batches: tuple[Batch, ...]
    counts: Mapping[str, int]
    tokens: int
    sequences: int
    stage: int
    cursor: Cursor
    digest: int

    def pin_memory(self) -> Step:
        """Return a copy in pinned memory."""
        return replace(
            self, micro_batches=tuple(micro_batch.map(Tensor.pin_memory) for micro_batch in self.micro_batches)
        )


@dataclass(frozen=True)
class Steps:
    """Creates the steps of a run.

    Attributes:
        take: returns the samples of a step, for all processes.
        share: returns which of these samples are this process's, by their indices; with streams, the same ones in each
            step.
        prepare: masks samples and counts their targets.
        plan: adds to a batch what is to be known of it on the host.
        micro_tokens: maximum number of tokens in a micro-batch.
    """

    take: Take
    share: Callable[[Samples], Sequence[int]]
    prepare: Prepare
    plan: Callable[[Batch], Batch]
    micro_tokens: int

    def make(self, samples: Samples, cursor: Cursor) -> Step:
        """Read and prepare this process's share of the samples taken."""
        share = samples.read(self.share(samples))
        parts = split(share, self.micro_tokens) if share else []
        micro_batches = tuple(self.plan(collate(self.prepare(part))) for part in parts)
        return Step(
            micro_batches=micro_batches,
            counts=add_counts(micro_batches) if micro_batches else {},
            tokens=samples.tokens,
            sequences=len(samples),
            stage=samples.stage,
            cursor=cursor,
            digest=zlib.crc32(samples.lengths.tobytes()),
        )

    def stream(self, number: int, cursor: Cursor, workers: int = 0) -> Iterator[Step]:
        """Return an iterator over all steps from `number` on, prepared ahead by `workers` processes; 0: in this one.

        Workers are forked, which the operating system must support (see training/machine.py).
        """
        stream = _Stream(self, number, cursor)
        if not workers:
            return iter(stream)
        loader: DataLoader[Any] = DataLoader(
            stream,
            batch_size=None,
            num_workers=workers,
            multiprocessing_context="fork",  # `Steps` cannot be pickled
            collate_fn=_PickledStep.of,
            worker_init_fn=_begin,
            pin_memory=torch.cuda.is_available(),
        )
        return (step.load() if isinstance(step, _PickledStep) else step for step in loader)


@dataclass(frozen=True)
class _PickledStep:
    """A step on its way from a worker, its tensors as arrays in the pipe.

    torch would pass each tensor as a file in shared memory, which takes a millisecond; a step has twenty.
    """

    content: bytes

    @classmethod
    def of(cls, step: Any) -> _PickledStep:
        file = io.BytesIO()
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(step)
        return cls(file.getvalue())

    def load(self) -> Step:
        step: Step = pickle.loads(self.content)
        return step

    def pin_memory(self) -> Step:
        """Return the step in pinned memory; called by the DataLoader."""
        return self.load().pin_memory()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: object) -> Any:
        if isinstance(value, Tensor):
            return torch.from_numpy, (value.numpy(),)
        return NotImplemented


class _Stream(IterableDataset[Step]):
    def __init__(self, steps: Steps, number: int, cursor: Cursor) -> None:
        self.steps, self.number, self.cursor = steps, number, cursor

    def __iter__(self) -> Iterator[Step]:
        worker: Any = get_worker_info()
        rank, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        cursor = self.cursor
        for index in count():
            samples, cursor = self.steps.take(self.number + index, cursor)
            if index % workers == rank:
                yield self.steps.make(samples, cursor)


def _begin(worker: int) -> None:
    """Begin a worker.

    It ignores Ctrl-C: the training process handles that and terminates its workers itself. What it has from that
    process lives as long as it does; the garbage collector would otherwise go through it every few thousand samples.
    """
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def report_lost_workers() -> Iterator[None]:
    """Turn torch's error about a killed worker into a clear one; torch raises it anywhere, from a signal handler.

    Raises:
        UnmaskError: a worker was killed.
    """
    try:
        yield
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise UnmaskError(
            f"a worker process that prepares batches died ({str(error).splitlines()[0]}); the checkpoints are intact: "
            f"continue with {argument('resume', True)}, with fewer {argument('workers')} if memory is short"
        ) from error
