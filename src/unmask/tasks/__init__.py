"""Kinds of tasks, one per file. To add one: write its file, a line here, and a test.

The table holds the location of each class rather than the class itself, so that the names are known without importing
torch, which the classes need.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias

from unmask.support.plugins import Registry

if TYPE_CHECKING:
    from unmask.tasks.answer_beams import AnswerBeams
    from unmask.tasks.classification import Classification
    from unmask.tasks.dialogues import Coqa, Quac
    from unmask.tasks.embedding import Embedding
    from unmask.tasks.hotpotqa import Hotpotqa
    from unmask.tasks.late_interaction import LateInteraction
    from unmask.tasks.multi_label import MultiLabel
    from unmask.tasks.multiple_choice import MultipleChoice
    from unmask.tasks.question_answering import QuestionAnswering
    from unmask.tasks.ranking import Ranking
    from unmask.tasks.regression import Regression
    from unmask.tasks.relations import Relations
    from unmask.tasks.spans import Spans
    from unmask.tasks.sparse import Sparse
    from unmask.tasks.task import Task
    from unmask.tasks.token_classification import TokenClassification

    AnyTask: TypeAlias = (
        Classification
        | MultiLabel
        | Regression
        | Ranking
        | Embedding
        | Sparse
        | LateInteraction
        | QuestionAnswering
        | AnswerBeams
        | Quac
        | Coqa
        | Hotpotqa
        | MultipleChoice
        | TokenClassification
        | Spans
        | Relations
    )

CLASSES = {
    "classification": "unmask.tasks.classification:Classification",
    "multi-label": "unmask.tasks.multi_label:MultiLabel",
    "regression": "unmask.tasks.regression:Regression",
    "ranking": "unmask.tasks.ranking:Ranking",
    "embedding": "unmask.tasks.embedding:Embedding",
    "sparse": "unmask.tasks.sparse:Sparse",
    "late-interaction": "unmask.tasks.late_interaction:LateInteraction",
    "question-answering": "unmask.tasks.question_answering:QuestionAnswering",
    "answer-beams": "unmask.tasks.answer_beams:AnswerBeams",
    "quac": "unmask.tasks.dialogues:Quac",
    "coqa": "unmask.tasks.dialogues:Coqa",
    "hotpotqa": "unmask.tasks.hotpotqa:Hotpotqa",
    "multiple-choice": "unmask.tasks.multiple_choice:MultipleChoice",
    "token-classification": "unmask.tasks.token_classification:TokenClassification",
    "spans": "unmask.tasks.spans:Spans",
    "relations": "unmask.tasks.relations:Relations",
}
"""Import path of the settings class of each built-in task, by name."""

TASKS: Registry[type[Task]] = Registry("unmask.tasks", CLASSES, "unmask.tasks.task:Task")
"""Settings class by name: TASK on the command line, `kind` in a recipe's [task]."""


def __getattr__(name: str) -> Any:
    """Return `AnyTask`, the union of all task classes, built on demand because it imports every class."""
    if name != "AnyTask":
        raise AttributeError(f"module 'unmask.tasks' has no attribute '{name}'")
    return reduce(or_, TASKS.values())
