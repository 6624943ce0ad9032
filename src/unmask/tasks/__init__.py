"""Kinds of tasks, one a file. A new one: its file, a line here, a test.

The table holds where each class is, not the class: the names are known without torch, which the classes need.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from unmask.plugins import Table

if TYPE_CHECKING:
    from unmask.tasks.classification import Classification
    from unmask.tasks.question_answering import QuestionAnswering
    from unmask.tasks.regression import Regression
    from unmask.tasks.task import Task
    from unmask.tasks.token_classification import TokenClassification

    AnyTask = Classification | Regression | QuestionAnswering | TokenClassification

CLASSES = {
    "classification": "unmask.tasks.classification:Classification",
    "regression": "unmask.tasks.regression:Regression",
    "question-answering": "unmask.tasks.question_answering:QuestionAnswering",
    "token-classification": "unmask.tasks.token_classification:TokenClassification",
}
"""Where the settings of our tasks are, by name."""

TASKS: Table[type[Task]] = Table("unmask.tasks", CLASSES)
"""TASK on the command line and `kind` in [task] to its settings."""


def __getattr__(name: str) -> Any:
    """Return `AnyTask`, what [task] of a recipe may be, when it is asked for: it needs all classes."""
    if name != "AnyTask":
        raise AttributeError(f"module 'unmask.tasks' has no attribute '{name}'")
    return reduce(or_, TASKS.values())
