"""Examples of several tasks: each step reads the examples of one task, which is drawn by the numbers of examples.

Task i with n_i examples is drawn with a probability proportional to n_i^(1/T): by size with T = 1, almost equally with
a large T (Raffel et al. 2020, section 3.5.2, "temperature-scaled mixing"). Unlike there, the numbers of examples are
not limited, and a batch has examples of one task only, as in Liu et al. 2019 (MT-DNN, Algorithm 1), so that each step
is one of a task alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.rng import derive_rng
from unmask.data.batches.sources import Cursor, ExampleSource, Stage


def mixing_rates(sizes: Sequence[int], temperature: float) -> np.ndarray:
    """Return the probability of each task, (tasks,) float64.

    Args:
        sizes: numbers of examples, at least 1 each.
        temperature: T, above 0; infinity: all tasks are equally probable.
    """
    logs = np.log(sizes) / temperature  # of powers that may overflow
    powers = np.exp(logs - logs.max())
    return powers / powers.sum()


class MixedSource:
    """Batches of one task each, in a seeded order. Cursor: the step, and the cursor of each task.

    Args:
        parts: the examples of each task, prepared for its objective.
        temperature: see `mixing_rates`.
        seed: seed of the order of the tasks and of the examples of each.

    Attributes:
        rates: the probability of each task, (tasks,).
    """

    streams = 0
    epoch = None

    def __init__(self, parts: Sequence[Sequence[Sample]], *, temperature: float, seed: int) -> None:
        self.sources = [ExampleSource(samples, seed=seed) for samples in parts]
        self.sizes = list(map(len, parts))
        self.rates = mixing_rates(self.sizes, temperature)
        self.seed = seed
        self.stages = (Stage(share=1.0, length=max(source.stages[0].length for source in self.sources)),)
        self.start: Cursor = (0, *(number for source in self.sources for number in source.start))

    def task_at(self, step: int) -> int:
        """Return the index of the task of a step, a function of the seed and the step."""
        draw = derive_rng(self.seed, "task", step).random()
        return min(int(np.searchsorted(np.cumsum(self.rates), draw, side="right")), len(self.rates) - 1)

    def take(
        self, cursor: Cursor, *, tokens: int | None = None, sequences: int | None = None
    ) -> tuple[list[Sample], Cursor]:
        """See `Source`; the samples are those of one task, whose index begins their keys."""
        step, *inner = cursor
        task = self.task_at(step)
        begin, end = 2 * task, 2 * task + 2
        taken, after = self.sources[task].take(tuple(inner[begin:end]), tokens=tokens, sequences=sequences)
        named = [sample.named((task, *sample.key)) for sample in taken]
        return named, (step + 1, *inner[:begin], *after, *inner[end:])

    def epochs(self, cursor: Cursor) -> float:
        """See `Source`: the number of examples read, of all tasks, as a multiple of their number."""
        read = [epochs * size for epochs, size in zip(self.epochs_of_each(cursor), self.sizes, strict=True)]
        return math.fsum(read) / sum(self.sizes)

    def epochs_of_each(self, cursor: Cursor) -> list[float]:
        """Return the number of epochs of each task up to a cursor."""
        parts = zip(cursor[1::2], cursor[2::2], strict=True)
        return [source.epochs(part) for source, part in zip(self.sources, parts, strict=True)]

    def enter(self, cursor: Cursor, stage: int) -> Cursor:
        """See `Source`: there is one stage."""
        return cursor
