"""Gold labels of rows with one label each: their names in order, their indices, distributions and votes.

Input: labeled rows. Output: arrays in the order of the rows and of the model's labels.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np

from unmask.data.labelled.label_cells import WEIGHT
from unmask.data.labelled.label_spellings import LONGEST_NUMBER, MAYBE_MISSING, NO_CLASS, fold_label, shown
from unmask.data.labelled.labelled_file import Row
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument, setting

MINORITY = 0.25
"""Share of the training examples below which one of two labels is the positive one."""
MOST_NAMED = 5
"""Labels that a note names."""
EXAMPLE_WEIGHTS = "example_weights"
"""Name of the weights of examples in samples."""


def sort_labels(names: Iterable[str]) -> tuple[str, ...]:
    """Return labels sorted by value if all are numbers, alphabetically otherwise."""
    values = {name: _number(name) for name in names}
    numeric = None not in values.values()
    return tuple(sorted(values, key=lambda name: (values[name] if numeric else 0, name)))


def label_numbers(rows: Sequence[Row], labels: Sequence[str]) -> list[int]:
    """Return the index of each row's label.

    Raises:
        UserError: a name is unknown.
    """
    numbers = {label: number for number, label in enumerate(labels)}
    for row in rows:
        if row.values["label"] not in numbers:
            raise unknown_label(row.values["label"], row, labels)
    return [numbers[row.values["label"]] for row in rows]


def are_soft(rows: Iterable[Row]) -> bool:
    """Return whether any of the rows has soft labels."""
    return any(row.probabilities is not None for row in rows)


def soft_labels(rows: Sequence[Row], labels: Sequence[str]) -> np.ndarray:
    """Return the probability of each label of each row, (rows, labels): 0 or 1 if its labels are not soft.

    Raises:
        UserError: a name is unknown.
    """
    numbers = {label: number for number, label in enumerate(labels)}
    probabilities = np.zeros((len(rows), len(labels)))
    for index, row in enumerate(rows):
        for name, probability in _probabilities(row).items():
            if name not in numbers:
                raise unknown_label(name, row, labels)
            probabilities[index, numbers[name]] = probability
    return probabilities


def _probabilities(row: Row) -> Mapping[str, float]:
    """Return the probabilities of a row's labels, of which it has one or, if `labels` is set, any number."""
    if row.probabilities is not None:
        return row.probabilities
    return dict.fromkeys((row.values["label"],) if row.labels is None else row.labels, 1.0)


def example_weights(rows: Sequence[Row]) -> np.ndarray | None:
    """Return the weight of each row in the loss, relative to the mean of all, (rows,); None: rows have none.

    The loss of a step is the weighted sum over its number of examples, whose mean weight is 1 over all steps. So an
    example of weight 2 counts as much as two in batches of any size, which a sum over that of the weights in a step
    would not give: there, the weight of an example that is alone has no effect.

    Raises:
        UserError: a weight is not a number of 0 or more, or all are 0.
    """
    if not any(WEIGHT in row.values for row in rows):
        return None
    weights = np.zeros(len(rows))
    for index, row in enumerate(rows):
        with suppress(KeyError, ValueError):
            weights[index] = float(row.values[WEIGHT])
            if 0 <= weights[index] < math.inf:
                continue
        raise UserError(
            f"the weight {row.values.get(WEIGHT, '')[:40]!r} is not a number of 0 or more",
            file=row.file,
            line=row.line,
            remedy="correct it",
        )
    if not weights.any():
        raise UserError("all weights are 0", file=rows[0].file, remedy=f"omit {argument('columns', {WEIGHT: '…'})}")
    weights /= weights.max()  # so that the sum is finite
    return np.asarray(weights / weights.mean())


def unweighted(examples: Iterable[Any]) -> list[Any]:
    """Return examples of any task without their weights."""

    def of(example: Any) -> Any:
        if not isinstance(example, Row) or WEIGHT not in example.values:
            return example
        values = {name: value for name, value in example.values.items() if name != WEIGHT}
        return msgspec.structs.replace(example, values=values)

    return list(map(of, examples))


def votes_of(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Return the votes of the rows that have some: a label of each annotator, or a set of labels."""
    return [row.votes for row in rows if row.votes]


def positive_label(wanted: str, labels: Sequence[str], counts: np.ndarray) -> str:
    """Return the positive label; "" if there are not two labels.

    Args:
        wanted: the one that was asked for; "": none.
        labels: their names.
        counts: the number of training examples of each, (labels,).

    Raises:
        UserError: the one that was asked for is not one of two.
    """
    if wanted and (len(labels) != 2 or wanted not in labels):
        raise UserError(
            f"{setting('task.positive', wanted)} is not one of two labels",
            remedy=f"omit it, or name one of {', '.join(labels)}",
        )
    if len(labels) != 2:
        return ""
    rare = int(counts.argmin())
    return wanted or labels[rare if counts[rare] < MINORITY * counts.sum() else 1]


def describe_unseen(classes: Collection[str], found: Collection[str]) -> list[str]:
    """Return a note about classes of a model that no example has, as where its file has no column for them.

    Args:
        classes: those of the model; see `Task.classes`.
        found: the labels of the examples; if there are none, the task has no classes.
    """
    unseen = sorted(set(classes).difference(found)) if found else []
    some = ", ".join(map(shown, unseen[:MOST_NAMED])) + (", …" if len(unseen) > MOST_NAMED else "")
    return [f"{counted(len(unseen), 'label')} of the model that no example has: {some}"] if unseen else []


def unknown_label(name: str, row: Row, labels: Sequence[str]) -> UserError:
    """Return the error for a row with a label that the model does not know."""
    remedy = "correct the label, or train on a file that contains it"
    if same := next((label for label in labels if fold_label(label) == fold_label(name)), None):
        remedy = f"write it as the model does: {shown(same)}"
    elif all(label == f"LABEL_{number}" for number, label in enumerate(labels)):
        remedy = f"name the labels of the model under id2label in its config.json, or write {labels[0]} and so on"
    elif name == NO_CLASS or name in MAYBE_MISSING:
        remedy = f"if it stands for a missing label, remove these rows; otherwise {remedy}"
    return UserError(
        f"unknown label {shown(name)}; the model knows {', '.join(labels)}",
        file=row.file,
        line=row.line,
        remedy=remedy,
    )


def _number(text: str) -> Decimal | None:
    """Return the value of a label; None if it is not a finite number."""
    with suppress(InvalidOperation):
        if len(text) <= LONGEST_NUMBER and (number := Decimal(text)).is_finite():
            return number
    return None
