"""Dynamic batching: samples of many requests in, one batch at a time through the model, each request's rows out.

One thread per model computes. While it computes a batch, samples queue up, and the next batch takes them in order, up
to a number of tokens; a request with more samples than fit goes to the end of the queue for the rest, so that it does
not block others. An idle thread waits `Limits.wait` for more samples. If a batch of several requests fails, each of
them is computed alone, so that only the cause fails.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unmask.data.batches.batch import Sample, total_length
from unmask.serving.bodies import Refusal, overloaded, unhealthy
from unmask.serving.metrics import Meter
from unmask.serving.types import Limits

Head = str | tuple[int, ...] | Callable[[Sequence[Sample]], list[np.ndarray]]
"""What to compute of samples: the logits of a head, the hidden states of layers, or a function's result."""
Compute = Callable[[Head, Sequence[Sample]], list[np.ndarray]]
Watch = Callable[["asyncio.Future[list[np.ndarray]]"], None]
"""See `Batcher.run`."""

SMOOTHING = 0.1
"""Share of the last batch in the moving average of the speed."""
LONGEST_RETRY = 60
"""Maximum of Retry-After in seconds."""


@dataclass(frozen=True)
class ComputeJob:
    """A request, ready to be computed.

    Attributes:
        head: see `Head`; jobs with the same one are computed together.
        samples: inputs of the encoder.
        read: converts the rows of each sample to the response.
        infinite: whether rows may contain minus infinity.
        normalized: number of first components of the vectors, a row each, that are divided by their norm; 0: none.
    """

    head: Head
    samples: Sequence[Sample]
    read: Callable[[list[np.ndarray]], Any]
    infinite: bool = False
    normalized: int = 0

    def sound(self, rows: Sequence[np.ndarray]) -> bool:
        """Return whether rows are numbers, and norms of vectors, by which they are divided."""
        if self.normalized:
            with np.errstate(over="ignore", invalid="ignore"):
                return all(np.isfinite(np.square(values[: self.normalized]).sum()) for values in rows)
        if self.infinite:
            return all((values < np.inf).all() for values in rows)  # false for what is not a number
        return all(np.isfinite(values).all() for values in rows)


@dataclass(eq=False)
class _Work:
    """A job in the queue: `taken` samples are computed or being computed, `left` are not computed yet."""

    job: ComputeJob
    future: asyncio.Future[list[np.ndarray]]
    born: float
    left: int
    taken: int = 0
    dropped: bool = False
    rows: dict[int, np.ndarray] = field(default_factory=dict)


_Part = tuple[_Work, list[int]]
"""Samples of a work, by number, in a batch."""
_Done = tuple[_Work, Refusal | None]
"""A work with its rows, or why it has none."""


class Batcher:
    """The queue and the computing thread of a model; starts with the first job, in the event loop that it comes from.

    Args:
        compute: returns the rows of each sample; called in the thread.
        limits: `batch_tokens`, `queue_tokens` and `wait`.
        meter: counts what is computed.
        name: name of the model, for `meter`.
    """

    def __init__(self, compute: Compute, limits: Limits, meter: Meter, name: str) -> None:
        self._compute, self._limits, self._meter, self._name = compute, limits, meter, name
        self._ready = threading.Condition()
        self._queue: deque[_Work] = deque()
        self._waiting = 0  # tokens in the queue
        self._pending = 0  # tokens in the queue or being computed
        self._speed = 0.0  # tokens per second
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        """Number of tokens that wait or are computed."""
        return self._pending

    async def run(self, job: ComputeJob, watch: Watch | None = None) -> list[np.ndarray]:
        """Return the rows of a job's samples; if the waiting is ended, what is not computed yet is dropped.

        Args:
            job: the job.
            watch: called with the future that is waited for, which the caller may end by an exception of its own; None:
                the caller can only be cancelled.

        Raises:
            Refusal: the queue is full (429), the server stops (503), or computing fails (424).
        """
        work = self._submit(job)
        try:
            if watch is not None:
                watch(work.future)
            return await work.future
        except BaseException:
            self._drop(work)
            raise

    def close(self) -> None:
        """Refuse further jobs, and stop the thread after the current batch; waiting jobs fail."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        if self._thread is not None:
            self._thread.join()

    def _submit(self, job: ComputeJob) -> _Work:
        tokens = total_length(job.samples)
        with self._ready:
            if self._closed:
                raise unhealthy("the server is stopping")
            if self._pending and self._pending + tokens > self._limits.queue_tokens:
                raise overloaded("too many texts are waiting; try again later", self._retry())
            work = _Work(job, asyncio.get_running_loop().create_future(), time.monotonic(), len(job.samples))
            if not job.samples:
                work.future.set_result([])
                return work
            self._pending += tokens
            self._waiting += tokens
            self._queue.append(work)
            if len(self._queue) == 1 or self._waiting >= self._limits.batch_tokens:
                self._ready.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"compute {self._name}", daemon=True)
            self._thread.start()
        return work

    def _retry(self) -> int:
        """Return after how many seconds the queue will be empty at the present speed."""
        return min(LONGEST_RETRY, math.ceil(self._pending / self._speed)) if self._speed else 1

    def _drop(self, work: _Work) -> None:
        """Remove what is left of a work from the queue."""
        with self._ready:
            work.dropped = True
            if work not in self._queue:
                return
            self._queue.remove(work)
            tokens = total_length(work.job.samples[work.taken :])
            self._waiting -= tokens
            self._pending -= tokens

    def _work(self) -> None:
        while parts := self._next():
            samples = [work.job.samples[number] for work, numbers in parts for number in numbers]
            tokens, started = total_length(samples), time.monotonic()
            done = self._run(parts)
            seconds = time.monotonic() - started
            for work, refusal in done:
                if refusal is not None:
                    self._drop(work)
            with self._ready:
                self._pending -= tokens
                speed = tokens / max(seconds, 1e-6)
                self._speed += (speed - self._speed) * (SMOOTHING if self._speed else 1)
            self._meter.batch(self._name, tokens, len(samples), seconds)
            _deliver(done)
        for work in list(self._queue):
            _deliver([(work, unhealthy("the server has stopped"))])

    def _next(self) -> list[_Part]:
        """Wait for samples, and return the next batch; empty if the server stops."""
        with self._ready:
            while not self._closed:
                if not self._queue:
                    self._ready.wait()
                    continue
                late = self._queue[0].born + self._limits.wait - time.monotonic()
                if late <= 0 or self._waiting >= self._limits.batch_tokens:
                    return self._cut()
                self._ready.wait(late)
            return []

    def _cut(self) -> list[_Part]:
        """Take a batch from the queue: samples of the first work, and of others with the same head."""
        head, budget = self._queue[0].job.head, self._limits.batch_tokens
        parts: list[_Part] = []
        total, untouched, unfinished = 0, list[_Work](), list[_Work]()
        for work in self._queue:
            samples, first = work.job.samples, work.taken
            if work.job.head == head:
                while work.taken < len(samples) and (not total or total + len(samples[work.taken]) <= budget):
                    total += len(samples[work.taken])
                    work.taken += 1
            if work.taken > first:
                parts.append((work, list(range(first, work.taken))))
            if work.taken < len(samples):
                (unfinished if work.taken > first else untouched).append(work)
        self._queue = deque((*untouched, *unfinished))
        self._waiting -= total
        return parts

    def _run(self, parts: list[_Part]) -> list[_Done]:
        """Compute a batch and return the works that are complete; on failure, compute each work alone."""
        parts = [(work, numbers) for work, numbers in parts if not work.dropped]
        if not parts:
            return []
        samples = [work.job.samples[number] for work, numbers in parts for number in numbers]
        try:
            rows = iter(self._compute(parts[0][0].job.head, samples))
        except Exception as error:
            if len(parts) > 1:
                return [completed for part in parts for completed in self._run([part])]
            self._meter.failure(self._name, error)
            return [(parts[0][0], _failed())]
        done: list[_Done] = []
        for work, numbers in parts:
            work.rows |= {number: next(rows) for number in numbers}
            work.left -= len(numbers)
            if not work.job.sound([work.rows[number] for number in numbers]):
                self._meter.failure(self._name, FloatingPointError())
                done.append((work, _failed()))
            elif not work.left:
                done.append((work, None))
        return done


def _failed() -> Refusal:
    return Refusal(424, "Backend", "computing failed")


def _deliver(done: Sequence[_Done]) -> None:
    """Hand results, or refusals, to the event loop in which the requests wait."""

    def resolve() -> None:
        for work, refusal in done:
            if work.future.done():
                continue
            if refusal is not None:
                work.future.set_exception(refusal)
            else:
                work.future.set_result([work.rows[number] for number in range(len(work.job.samples))])

    if done:
        loop = done[0][0].future.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(resolve)
