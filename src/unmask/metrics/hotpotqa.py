"""The metrics of HotpotQA, times 100, as its official scorer computes them (hotpot_evaluate_v1.py; Yang et al. 2018).

Input: predicted answers and supporting sentences, and the gold ones. Output: exact match, F1, precision and recall of
answers, of support, and of both together.

Those of answers are SQuAD's, but an answer that is "yes", "no" or "noanswer" has words in common only with itself. The
joint precision and recall of a question are the products of both, and so is the joint exact match. A missing answer, or
missing support, counts 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from unmask.metrics.intervals import Measure
from unmask.metrics.question_answering import normalize

Fact = tuple[str, int]
"""A sentence: the title of its paragraph and its number in it, from 0."""
PARTS = ("", "support_", "joint_")
KINDS = ("exact_match", "f1", "precision", "recall")
NAMES = tuple(part + kind for part in PARTS for kind in KINDS)
CLOSED = ("yes", "no", "noanswer")
"""Answers that have no words in common with others."""


class Solution(NamedTuple):
    """An answer and the sentences that support it; None: missing."""

    answer: str | None
    support: Collection[Fact] | None


def question_scores(gold: Solution, predicted: Solution) -> list[float]:
    """Return the metrics of a question in the order of `NAMES`, from 0 to 1."""
    answer = support = joint = (0.0, 0.0, 0.0)
    if predicted.answer is not None:
        answer = _answer(gold.answer or "", predicted.answer)
    if predicted.support is not None:
        support = _support(set(gold.support or ()), set(predicted.support))
    if predicted.answer is not None and predicted.support is not None:
        joint = tuple(scores * other for scores, other in zip(answer, support, strict=True))  # type: ignore[assignment]
    return [value for scores in (answer, support, joint) for value in _row(*scores)]


def measure(gold: Sequence[Solution], predicted: Sequence[Solution]) -> Measure:
    """Return a function from questions to metrics."""
    rows = [question_scores(*pair) for pair in zip(gold, predicted, strict=True)]
    values = 100 * np.array(rows, float).reshape(-1, len(NAMES))  # (questions, metrics)

    def chosen(examples: np.ndarray) -> dict[str, float]:
        return dict(zip(NAMES, values[examples].mean(0).tolist(), strict=True))

    return chosen


def support_f1(gold: Collection[Fact], predicted: Collection[Fact]) -> float:
    """Return the F1 of the supporting sentences of a question, from 0 to 1."""
    return _row(*_support(set(gold), set(predicted)))[1]


def _row(exact: float, precision: float, recall: float) -> tuple[float, float, float, float]:
    """Return exact match, F1, precision and recall."""
    f1 = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
    return exact, f1, precision, recall


def _answer(gold: str, predicted: str) -> tuple[float, float, float]:
    """Return exact match, precision and recall of an answer."""
    gold, predicted = normalize(gold), normalize(predicted)
    exact = float(gold == predicted)
    if not exact and (gold in CLOSED or predicted in CLOSED):
        return 0.0, 0.0, 0.0
    words, guessed = gold.split(), predicted.split()
    shared = sum((Counter(words) & Counter(guessed)).values())
    return (exact, shared / len(guessed), shared / len(words)) if shared else (exact, 0.0, 0.0)


def _support(gold: set[Fact], predicted: set[Fact]) -> tuple[float, float, float]:
    """Return exact match, precision and recall of supporting sentences."""
    shared = len(gold & predicted)
    return float(gold == predicted), shared / len(predicted) if predicted else 0.0, shared / len(gold) if gold else 0.0
