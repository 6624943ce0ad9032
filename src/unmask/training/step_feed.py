"""The steps of a run for one process: which samples each reads, in which stage, and this process's share of them.

In: a source, the recipe's batch, and where the run stands. Out: `Step`s, made ahead by workers where there are some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from unmask.batches.batch import Sample
from unmask.batches.sources import Cursor, Source
from unmask.batches.stages import stage_at
from unmask.batches.steps import Step, Steps
from unmask.errors import UserError
from unmask.training.checkpoint import Progress
from unmask.training.processes import Processes
from unmask.training.settings import BatchSettings


class StepFeed:
    """Gives one step after the other from where the run stands; `restart` it wherever that is changed.

    Args:
        source: of samples.
        batch: the recipe's.
        prepare: masks a sample and counts its targets.
        processes: those that share each step.
        workers: processes that make batches ahead.

    Raises:
        UserError: the source has streams, and a batch is not one window of each.
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
            said = f"batch.sequences is {batch.sequences}" if batch.sequences else f"batch.tokens is {batch.tokens}"
            raise UserError(
                f"layout.streams is {source.streams}, and each step reads one window of every stream, but {said}",
                remedy=f"pass --set batch.sequences={source.streams}",
            )
        self.source = source
        self.batch = batch
        self.prepare = prepare
        self.processes = processes
        self.workers = workers
        self.total = 0
        self._steps: Iterator[Step] | None = None

    def restart(self) -> None:
        """Forget what was made ahead."""
        self._steps = None

    def next(self, progress: Progress) -> Step:
        """Return what the next step learns from.

        Raises:
            UserError: there are more processes than samples in it.
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
        """Return a step's samples, of its stage; while steps are timed, of the stage that the cursor is in."""
        if self.total:
            cursor = self.source.enter(cursor, stage_at(self.source.stages, step, self.total))
        samples, cursor = self.source.take(cursor, tokens=self.batch.tokens, sequences=self.batch.sequences)
        done = step / self.total if self.total else 0.0
        return [sample.at(done) for sample in samples], cursor
