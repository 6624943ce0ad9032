"""The metrics of CoQA, times 100, as its official scorer computes them (evaluate-v1.0.py; Reddy et al. 2019).

Input: predicted answers and the gold answers of each question. Output: exact match and F1, of all questions and of
those of each domain.

Both are those of SQuAD 2.0. With several gold answers, each is left out in turn, and the mean over these of the best
match with the others counts: so can each human be scored, too. A missing prediction counts 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unmask.metrics.intervals import Measure
from unmask.metrics.question_answering import normalize, overlap

IN_DOMAIN = {
    "mctest": "children_stories",
    "gutenberg": "literature",
    "race": "mid-high_school",
    "cnn": "news",
    "wikipedia": "wikipedia",
}
"""Names of the domains that CoQA has training data of, by source."""
OUT_DOMAIN = {"reddit": "reddit", "science": "science"}
"""Names of the others."""


def turn_scores(references: Sequence[str], predicted: str | None) -> tuple[float, float]:
    """Return exact match and F1 of a prediction, from 0 to 1; None is a missing one."""
    if predicted is None:
        return 0.0, 0.0
    scores = [_score(gold, predicted) for gold in references]
    folds = [[*scores[:number], *scores[number + 1 :]] for number in range(len(scores))]
    if len(scores) == 1:
        folds = [scores]
    exact = sum(max(exact_match for exact_match, _ in fold) for fold in folds) / len(folds)
    return exact, sum(max(f1 for _, f1 in fold) for fold in folds) / len(folds)


def measure(gold: Sequence[Sequence[str]], predicted: Sequence[str | None]) -> Measure:
    """Return a function from questions to metrics."""
    pairs = zip(gold, predicted, strict=True)
    values = 100 * np.array([turn_scores(*pair) for pair in pairs], float).reshape(-1, 2)  # (questions, 2)

    def chosen(examples: np.ndarray) -> dict[str, float]:
        exact, f1 = values[examples].mean(0)
        return {"f1": float(f1), "exact_match": float(exact)}

    return chosen


def by_domain(sources: Sequence[str], of: Measure) -> dict[str, dict[str, float]]:
    """Return the metrics of the questions of each domain that occurs, and of those in and out of domain.

    Args:
        sources: the source of each question's story.
        of: the metrics of a selection of questions.
    """
    names = {**IN_DOMAIN, **OUT_DOMAIN}
    parts = {names.get(source, source): [source] for source in dict.fromkeys(sources) if source}
    parts |= {"in_domain": list(IN_DOMAIN), "out_domain": list(OUT_DOMAIN)}
    selections = {name: np.flatnonzero(np.isin(sources, part)) for name, part in parts.items()}
    return {name: of(examples) for name, examples in selections.items() if len(examples)}


def _score(gold: str, predicted: str) -> tuple[float, float]:
    gold, predicted = normalize(gold), normalize(predicted)
    exact = float(gold == predicted)
    return exact, overlap(gold.split(), predicted.split()) if gold and predicted else exact
