"""Kinds of tasks, one a file. A new one: its file, a line here, a test."""

from unmask.tasks.classification import Classification
from unmask.tasks.regression import Regression

TASKS: dict[str, type[Classification] | type[Regression]] = {
    "classification": Classification,
    "regression": Regression,
}
"""TASK on the command line and `kind` in [task] to its settings."""

AnyTask = Classification | Regression
"""What [task] of a recipe may be."""
