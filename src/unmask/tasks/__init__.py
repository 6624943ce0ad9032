"""Kinds of tasks, one a file. A new one: its file, a line here, a test.

The table holds where each class is, not the class: the names are known without torch, which the classes need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from unmask.plugins import with_names

if TYPE_CHECKING:
    from unmask.tasks.classification import Classification
    from unmask.tasks.question_answering import QuestionAnswering
    from unmask.tasks.regression import Regression
    from unmask.tasks.task import Task
    from unmask.tasks.token_classification import TokenClassification

    AnyTask = Classification | Regression | QuestionAnswering | TokenClassification

CLASSES = with_names(
    "unmask.tasks",
    {
        "classification": "unmask.tasks.classification:Classification",
        "regression": "unmask.tasks.regression:Regression",
        "question-answering": "unmask.tasks.question_answering:QuestionAnswering",
        "token-classification": "unmask.tasks.token_classification:TokenClassification",
    },
)
"""TASK on the command line and `kind` in [task], and where its settings are."""


class _Tasks(Mapping[str, "type[Task]"]):
    """The classes by name; each is imported when it is asked for."""

    def __getitem__(self, name: str) -> type[Task]:
        task: type[Task] = resolve_name(CLASSES[name])
        return task

    def __contains__(self, name: object) -> bool:
        return name in CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(CLASSES)

    def __len__(self) -> int:
        return len(CLASSES)


TASKS = _Tasks()
"""TASK on the command line and `kind` in [task] to its settings."""


def __getattr__(name: str) -> Any:
    """Return `AnyTask`, what [task] of a recipe may be, when it is asked for: it needs all classes."""
    if name != "AnyTask":
        raise AttributeError(f"module 'unmask.tasks' has no attribute '{name}'")
    return reduce(or_, TASKS.values())
