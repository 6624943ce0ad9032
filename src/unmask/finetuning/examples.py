"""What a fine-tuning learns from and is scored on: labelled files, divided and framed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from unmask.errors import UserError
from unmask.finetuning.job import LabelledFiles
from unmask.model import Model
from unmask.tasks.task import Framed, Task

HOLD_OUT_SEED = 0
"""Decides which tenth is held out, whatever the seed of the run, so that runs can be compared."""


@dataclass(frozen=True)
class Examples:
    """Examples to train on and to score on, the labels, where there are any, and what was left out."""

    train: list[Any]
    held: list[Any]
    labels: tuple[str, ...]
    notes: list[str]

    def inner(self, task: Task) -> Examples:
        """Return a tenth of the training examples as those to score on, for choices that must not see the others."""
        return Examples(*task.hold_out(self.train, HOLD_OUT_SEED), self.labels, self.notes)

    def fingerprints(self) -> dict[str, str]:
        """Return what tells these examples from others, of each part."""
        parts = {"train": self.train, "dev": self.held}
        return {name: hashlib.sha256(msgspec.json.encode(part)).hexdigest() for name, part in parts.items()}


def read_examples(task: Task, files: LabelledFiles, base: Model) -> Examples:
    """Read the files; where the labels are those of the model, they are in its order.

    Raises:
        UserError: a file cannot be read, or is not of the task's kind.
    """
    notes: list[str] = []
    read = partial(task.read, columns=files.columns, kind=files.kind, notes=notes)
    examples = read(files.train)
    labels = task.label_names(examples)
    if set(labels) == set(base.labels):
        labels = base.labels
    if files.dev:
        return Examples(examples, read(files.dev), labels, notes)
    return Examples(*task.hold_out(examples, HOLD_OUT_SEED), labels, notes)


def frame_examples(task: Task, base: Model, examples: Sequence[Any], labels: Sequence[str], what: str) -> Framed:
    """Turn examples into samples.

    Raises:
        UserError: none is left; it says that nothing can be `what`.
    """
    framed = task.frame(base.tokenizer, examples, labels, gold=True)
    if not framed.samples:
        raise UserError(f"nothing can be {what}", remedy="; ".join(framed.notes))
    return framed
