"""The steps of a run for one process: the samples of each step, its stage, and this process's share of the samples.

Input: a source, the recipe's batch settings, and the run's progress. Output: `Step`s, made in advance by workers if
there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from unmask.data.batches.batch import Batch, Prepare
from unmask.data.batches.samples import Samples
from unmask.data.batches.sources import Cursor, Source, stage_at
from unmask.data.batches.steps import Step, Steps
from unmask.objectives.flops import Costs
from unmask.support.errors import UserError
from unmask.support.messages import setting
from unmask.training.checkpoint import Progress
from unmask.training.processes import Processes
from unmask.training.settings import BatchSettings


class StepFeed:
    """Iterator over the steps from the run's current progress; call `close` whenever the progress is changed.

    Args:
        source: source of samples.
        batch: the recipe's batch settings.
        prepare: masks samples and counts their targets.
        plan: see `Steps`.
        processes: the processes that share each step.
        workers: number of processes that make batches in advance.
        cost: costs of samples by their lengths, (samples,) each, by which steps are shared; None: each process gets
            every n-th sample. So it is with streams, of whose state a process has its own, and where samples are
            compared with all others of their process, which needs equal numbers.

    Raises:
        UserError: the source has streams, and a batch is not one window of each stream.
    """

    def __init__(
        self,
        source: Source,
        batch: BatchSettings,
        prepare: Prepare,
        plan: Callable[[Batch], Batch],
        processes: Processes,
        workers: int,
        cost: Costs | None = None,
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
        self.plan = plan
        self.processes = processes
        self.workers = workers
        self.cost = None if source.streams else cost
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
            steps = Steps(self.take, self.share, self.prepare, self.plan, progress.micro_tokens)
            self._steps = steps.stream(progress.step, progress.cursor, self.workers)
        step = next(self._steps)
        if step.sequences < self.processes.size:
            enlarge = "layout.streams and batch.sequences" if self.source.streams else "batch.tokens or batch.sequences"
            raise UserError(
                f"a step of {step.sequences} sequences cannot be shared by {self.processes.size} processes",
                remedy=f"start fewer processes, or enlarge {enlarge}",
            )
        return step

    def share(self, samples: Samples) -> list[int]:
        """Return the indices of this process's samples of a step: in order of their lengths, or streams."""
        order = np.argsort(samples.lengths, kind="stable") if not self.source.streams else np.arange(len(samples))
        costs = None if self.cost is None else self.cost(samples.lengths[order]).tolist()
        return self.processes.share(order.tolist(), costs)

    def take(self, step: int, cursor: Cursor) -> tuple[Samples, Cursor]:
        """Return the samples of a step from its stage, or from the cursor's stage while steps are timed."""
        if self.total:
            cursor = self.source.enter(cursor, stage_at(self.source.stages, step, self.total))
        samples, cursor = self.source.take(cursor, tokens=self.batch.tokens, sequences=self.batch.sequences)
        done = step / self.total if self.total else 0.0
        return samples.map(lambda sample: sample.at(done)), cursor
