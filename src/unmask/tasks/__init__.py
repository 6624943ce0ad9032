"""Kinds of tasks, one a file. A new one: its file, a line here, a test."""

from unmask.tasks.classification import Classification
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.regression import Regression
from unmask.tasks.token_classification import TokenClassification

TASKS: dict[str, type[Classification] | type[Regression] | type[QuestionAnswering] | type[TokenClassification]] = {
    "classification": Classification,
    "regression": Regression,
    "question-answering": QuestionAnswering,
    "token-classification": TokenClassification,
}
"""TASK on the command line and `kind` in [task] to its settings."""

AnyTask = Classification | Regression | QuestionAnswering | TokenClassification
"""What [task] of a recipe may be."""
