"""What every task is: the base between labelled files and whatever trains, scores or asks a model.

examples -> `frame` -> samples -> (encoder, head) -> logits of each sample -> `Framed.read` -> predictions -> `measure`

A task is its settings, the recipe's [task]: a frozen value, stored with the model, so that texts are treated in use as
they were in training.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from unmask.batches.batch import Sample
from unmask.encoders.encoder import HeadSpec
from unmask.errors import UserError
from unmask.metrics.intervals import Measure
from unmask.objectives.objective import Objective
from unmask.tasks.mistake import Mistake
from unmask.tokenizers.tokenizer import Tokenizer

Paths = Sequence[str | Path]
Columns = Mapping[str, str]
"""Our column names to those of a file."""
Notes = list[str] | None
"""Where what a user should know is gathered, a line each."""

DEV_SHARE = 0.1
"""How much of the training examples is held out where no dev data is given."""


@dataclass(frozen=True)
class Framed:
    """Examples as samples, and the way back.

    Attributes:
        samples: one or several (windows) for each example.
        read: from the logits of each sample, in the samples' order, each (targets, classes), to the predictions, one
            for each example.
        notes: what a user should know of what was mended, cut or left out, a line each.
    """

    samples: list[Sample]
    read: Callable[[Sequence[np.ndarray]], list[Any]]
    notes: tuple[str, ...] = ()


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """One kind of task. Examples and predictions are of the task's own types.

    Attributes:
        length: of its sequences, in tokens, special ones included.
        part: what its head and its part of the loss are called.
        metric: by which of its metrics, the more the better, one model is chosen among several.
        title: what a model for it is called in its card.
        usage: what `unmask predict` is asked.
    """

    length: int = 128

    part: ClassVar[str]
    metric: ClassVar[str]
    title: ClassVar[str]
    usage: ClassVar[str] = '"A text."'

    def __post_init__(self) -> None:
        if self.length < 3:
            raise ValueError("length must be at least 3")

    @abstractmethod
    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[Any]:
        """Read examples from files, with what is to be predicted or, without `gold`, without it.

        What a format itself leaves out, or what departs from it, is counted in `notes`, a line each, for the user.

        Raises:
            UserError: a bad file; names file and line.
        """

    def from_texts(self, texts: Sequence[str], texts_b: Sequence[str] | None = None) -> list[Any]:
        """Return texts, or pairs of them, as examples without gold.

        Raises:
            UserError: the task takes none.
        """
        raise UserError(f"this model is for {self.part.replace('_', ' ')}", remedy=f"ask it with {self.usage}")

    @abstractmethod
    def label_names(self, examples: Sequence[Any]) -> tuple[str, ...]:
        """Return the labels of training examples, in order; none where nothing is classified.

        Raises:
            UserError: nothing can be learnt from them.
        """

    def told_apart(self, labels: Sequence[str]) -> set[str]:
        """Return what a model with these labels tells apart: two models are comparable where that is the same."""
        return set(labels)

    def settle(self, examples: Sequence[Any], labels: Sequence[str]) -> Self:
        """Return the task with all settings resolved that depend on the training examples."""
        return self

    @abstractmethod
    def hold_out(self, examples: Sequence[Any], seed: int) -> tuple[list[Any], list[Any]]:
        """Split a seeded tenth off: what to train on, and what to score on.

        Raises:
            UserError: too few examples.
        """

    @property
    def tunes(self) -> bool:
        """Whether a setting is left to `tune`."""
        return False

    def tune(self, examples: Sequence[Any], predictions: Sequence[Any]) -> Self:
        """Return the task with the settings that a trained model's predictions on examples set aside decide."""
        return self

    @abstractmethod
    def build(self, spec: HeadSpec, labels: Sequence[str]) -> Objective:
        """Return an untrained head, which is its own loss.

        Args:
            spec: what it must know of the body that it sits on.
            labels: in the model's order.
        """

    @abstractmethod
    def frame(self, tokenizer: Tokenizer, examples: Sequence[Any], labels: Sequence[str], *, gold: bool) -> Framed:
        """Turn examples into samples, with what is to be predicted or, without `gold`, without it.

        Raises:
            UserError: a label that is not among `labels`; names file and line.
        """

    @abstractmethod
    def measure(self, examples: Sequence[Any], predictions: Sequence[Any], labels: Sequence[str]) -> Measure:
        """Return the official metrics, times 100, as a function of the examples chosen."""

    def details(self, examples: Sequence[Any], predictions: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """Return what else there is to say of a score."""
        return {}

    @abstractmethod
    def mistakes(self, examples: Sequence[Any], predictions: Sequence[Any], labels: Sequence[str]) -> list[Mistake]:
        """Describe where the model is wrong, the worst first."""

    def files(self, path: Path, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[Path, bytes]:
        """Return the content of what `predict --out PATH` writes: JSON Lines."""
        return {path: b"".join(msgspec.json.encode(prediction) + b"\n" for prediction in predictions)}

    @abstractmethod
    def line(self, prediction: Any) -> str:
        """Return what a person wants to see of a prediction, in one line."""
