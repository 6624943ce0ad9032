"""What every task is: the protocol between labelled files and whatever trains, scores or asks a model.

examples -> `frame` -> samples -> (encoder, head) -> logits of each sample -> `Framed.read` -> predictions -> `measure`

A task is its settings, the recipe's [task]: a frozen value, stored with the model, so that texts are treated in use as
they were in training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unmask.batches.batch import Sample
from unmask.encoders.transformer import TransformerSettings
from unmask.metrics.intervals import Measure
from unmask.objectives.objective import Objective
from unmask.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class Framed:
    """Examples as samples, and the way back.

    Attributes:
        samples: one or several (windows) for each example.
        read: from the logits of each sample, in the samples' order, each (targets, classes), to the predictions, one
            for each example.
        remarks: what the user should know of what was mended, cut or left out, in lines.
    """

    samples: list[Sample]
    read: Callable[[Sequence[np.ndarray]], list[Any]]
    remarks: tuple[str, ...] = ()


class Task(Protocol):
    """One kind of task. Examples and predictions are of the task's own types.

    Attributes:
        length: of its sequences, in tokens, special ones included.
    """

    @property
    def length(self) -> int: ...  # noqa: D102

    @property
    def part(self) -> str:
        """What its head and its part of the loss are called."""
        ...

    def read(
        self, paths: Sequence[str | Path], *, columns: Mapping[str, str], kind: str | None = None, gold: bool = True
    ) -> list[Any]:
        """Read examples from files, with what is to be predicted or, without `gold`, without it.

        Raises:
            UserError: a bad file; names file and line.
        """
        ...

    def label_names(self, examples: Sequence[Any]) -> tuple[str, ...]:
        """Return the labels of training examples, in order; none where nothing is classified.

        Raises:
            UserError: nothing can be learnt from them.
        """
        ...

    def settle(self, examples: Sequence[Any], labels: Sequence[str]) -> Task:
        """Return the task with all settings resolved that depend on the training examples."""
        ...

    def hold_out(self, examples: Sequence[Any], seed: int) -> tuple[list[Any], list[Any]]:
        """Split a seeded tenth off: what to train on, and what to score on.

        Raises:
            UserError: too few examples.
        """
        ...

    def set_aside(self, examples: Sequence[Any], seed: int) -> tuple[list[Any], list[Any]]:
        """Split training examples: what to train on, and what to `tune` on; nothing where nothing is tuned.

        Raises:
            UserError: too few examples.
        """
        ...

    def tune(self, examples: Sequence[Any], predictions: Sequence[Any]) -> Task:
        """Return the task with the settings that a trained model's predictions on examples set aside decide."""
        ...

    def build(self, encoder: TransformerSettings, labels: Sequence[str]) -> Objective:
        """Return an untrained head, which is its own loss."""
        ...

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Any], labels: Sequence[str], *, gold: bool) -> Framed:
        """Turn examples into samples, with what is to be predicted or, without `gold`, without it.

        Raises:
            UserError: a label that is not among `labels`; names file and line.
        """
        ...

    def measure(self, examples: Sequence[Any], predictions: Sequence[Any], labels: Sequence[str]) -> Measure:
        """Return the official metrics, times 100, as a function of the examples chosen."""
        ...
