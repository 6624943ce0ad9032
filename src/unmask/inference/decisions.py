"""A backend for decisions: bf16 where the largest logit is clear, float32 where it is not.

Input: prepared samples. Output: logits whose largest class is that of float32, at little more than the cost of bf16.

A logit in bf16 is off by a few hundredths, and most decisions of a trained model have a margin of several units. All
samples are computed in bf16, and those with a smaller margin than `MARGIN` again in float32, beside some that are
evenly spaced. This shows how much bf16 is off: if `SAFETY` times that exceeds the margin, the margin is raised and more
samples are computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.inference.backend import TorchBackend
from unmask.model.model import Model
from unmask.training.machine import Machine
from unmask.training.runs.display import Display

MARGIN = 0.25
"""Difference between the two largest logits from which on a decision is clear at first."""
SAFETY = 3.0
"""Ratio of the margin to the largest error of a difference of two logits that was seen."""
CHECKED = 32
"""Number of evenly spaced samples that are computed in float32 in any case."""


class DecisionBackend:
    """`Backend` for tasks that predict the class with the largest logit; its logits serve no other purpose.

    Args:
        model: encoder, heads and task; not changed.
        machine: device and the fast precision.
        display: shows the progress of the fast computation.
    """

    has_layers = True

    def __init__(self, model: Model, machine: Machine, display: Display | None = None) -> None:
        self.fast = TorchBackend(model, machine, display)
        self.exact = TorchBackend(model, replace(machine, precision="float32"))

    @property
    def precision(self) -> str:
        """See `Backend`."""
        return self.fast.precision

    def has_head(self, head: str) -> bool:
        """See `Backend`."""
        return self.exact.has_head(head)

    def logits(self, head: str, samples: Sequence[Sample]) -> list[np.ndarray]:
        """See `Backend`."""
        all_logits = self.fast.logits(head, samples)
        margins = np.array([margin(logits) for logits in all_logits])
        step = max(1, len(samples) // CHECKED)
        doubtful, clear, known = set(range(0, len(samples), step)), MARGIN, set[int]()
        while doubtful := (doubtful | set(np.flatnonzero(margins < clear).tolist())) - known:
            numbers = sorted(doubtful)
            exact = self.exact.logits(head, [samples[number] for number in numbers])
            for number, logits in zip(numbers, exact, strict=True):
                clear = max(clear, SAFETY * error(all_logits[number], logits))
                all_logits[number] = logits
            known |= doubtful
        return all_logits

    def layers(
        self, samples: Sequence[Sample], layers: Sequence[int], *, at: str | None = None, pooled: bool = False
    ) -> Iterator[tuple[int, np.ndarray]]:
        """See `Backend`."""
        return self.fast.layers(samples, layers, at=at, pooled=pooled)


def margin(logits: np.ndarray) -> float:
    """Return the smallest difference between the two largest logits of a target; infinity without targets.

    Shape:
        logits: (targets, classes), with at least two classes.
    """
    largest = np.partition(logits, -2, axis=1)[:, -2:]  # (targets, 2), in order
    return float((largest[:, 1] - largest[:, 0]).min(initial=np.inf))


def error(fast: np.ndarray, exact: np.ndarray) -> float:
    """Return by how much a difference of two logits of a target is off at most.

    Shape:
        fast, exact: (targets, classes).
    """
    apart = fast - exact
    return float((apart.max(1) - apart.min(1)).max(initial=0.0))
