"""Metrics of texts with several labels, times 100: micro and macro F1, and the mean average precision.

Definitions: `f1_score` with `zero_division=0` and `average_precision_score` of scikit-learn; the tests compare with
them. A label that no example has counts as 0 in the macro F1, and is left out of the mean average precision.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unmask.metrics.intervals import Measure


def measure(gold: np.ndarray, predicted: np.ndarray, scores: np.ndarray) -> Measure:
    """Return a function from examples to metrics.

    Everything that does not depend on the selection is computed once; a selection is then a weight per example.

    Args:
        gold: which labels are right, (examples, labels) bool.
        predicted: which labels are predicted, (examples, labels) bool.
        scores: by which the labels of all examples are ranked, (examples, labels).
    """
    both = (gold & predicted).astype(float)
    gold, predicted = gold.astype(float), predicted.astype(float)
    ranked = _Ranked(gold, scores)

    def chosen(examples: np.ndarray) -> dict[str, float]:
        weights = np.bincount(examples, minlength=len(gold)).astype(float)
        correct, either = weights @ both, weights @ (gold + predicted)  # (labels,)
        return {
            "f1_micro": float(100 * _ratio(2 * correct.sum(), either.sum())),
            "f1_macro": float(100 * _ratio(2 * correct, either).mean()),
            "mean_average_precision": 100 * ranked.mean_average_precision(weights),
        }

    return chosen


def with_soft_labels(measure: Measure, gold: np.ndarray, probabilities: np.ndarray) -> Measure:
    """Return a measure that also has `cross_entropy`, in nats, and `brier`, from 0 to 1; neither is times 100.

    Both are means over examples and labels, as of `BCELoss` of PyTorch, and of `brier_score_loss` of scikit-learn for
    each label. Predicted probabilities that were rounded to 0 or 1 count as the smallest float32, and as that from 1.

    Args:
        measure: the other metrics.
        gold, probabilities: those of the data and of the model, (examples, labels).
    """
    entropy, distance = (values.mean(1) for values in _distances(gold, probabilities))  # (examples,) each

    def chosen(examples: np.ndarray) -> dict[str, float]:
        soft = {"cross_entropy": float(entropy[examples].mean()), "brier": float(distance[examples].mean())}
        return measure(examples) | soft

    return chosen


def soft_by_label(gold: np.ndarray, probabilities: np.ndarray, labels: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return `{cross_entropy, brier}` of each label; see `with_soft_labels`."""
    entropy, distance = (values.mean(0) for values in _distances(gold, probabilities))  # (labels,) each
    return {
        label: {"cross_entropy": float(entropy[number]), "brier": float(distance[number])}
        for number, label in enumerate(labels)
    }


def _distances(gold: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the binary cross-entropies and the squared differences, (examples, labels) each."""
    least = np.finfo(np.float32).tiny
    yes, no = np.log(np.maximum(probabilities, least)), np.log(np.maximum(1 - probabilities, least))
    return -(gold * yes + (1 - gold) * no), (gold - probabilities) ** 2


class _Ranked:
    """The examples in the order of their scores, for each label.

    Shape:
        gold, scores: (examples, labels).
    """

    def __init__(self, gold: np.ndarray, scores: np.ndarray) -> None:
        self.order = np.argsort(-scores.T, axis=1, kind="stable")  # (labels, examples)
        self.gold = np.take_along_axis(gold.T, self.order, axis=1)
        ordered = np.take_along_axis(scores.T, self.order, axis=1)
        last = np.ones(ordered.shape, bool)
        last[:, :-1] = ordered[:, :-1] != ordered[:, 1:]
        # examples with equal scores share the precision at the last of them
        ends = np.where(last, np.arange(ordered.shape[1]), ordered.shape[1])
        self.ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]

    def mean_average_precision(self, weights: np.ndarray) -> float:
        """Return the mean over the labels that an example with a weight has; weights: (examples,)."""
        ordered = weights[self.order]
        right = ordered * self.gold
        precision = _ratio(right.cumsum(1), ordered.cumsum(1))
        precision = np.take_along_axis(precision, self.ends, axis=1)
        totals = right.sum(1)
        average = _ratio((right * precision).sum(1), totals)
        return float(average[totals > 0].mean()) if totals.any() else 0.0


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.zeros(np.shape(below)), where=below > 0)
