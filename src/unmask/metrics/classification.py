"""Metrics of classification, times 100 as in GLUE: of texts with one label, and of texts with several.

Definitions: `accuracy_score`, `balanced_accuracy_score`, `f1_score`, `matthews_corrcoef`, `average_precision_score` and
`precision_recall_fscore_support` of scikit-learn; the tests compare with them. Of several labels, F1 is micro and
macro: a label that no example has counts as 0 in the macro F1 (`zero_division=0`), and is left out of the mean average
precision.

Calibration is whether what is predicted with probability p is right in a share p of cases: the expected calibration
error over 15 bins of equal width (Guo et al. 2017, equations 3 and 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from unmask.metrics.intervals import Measure

BINS = 15
"""Number of bins, as in Guo et al. 2017, section 5."""


def calibration_error(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Return the expected calibration error, times 100; 0 without predictions.

    Args:
        confidence: the probability of each prediction, (predictions,).
        correct: whether it is right, (predictions,) bool.
    """
    if not len(confidence):
        return 0.0
    # bin m is ((m - 1) / 15, m / 15]; probability 0 is in the first
    bins = np.clip(np.ceil(confidence.astype(float) * BINS).astype(int) - 1, 0, BINS - 1)
    gaps = np.bincount(bins, correct.astype(float) - confidence, minlength=BINS)  # the number times the difference
    return float(100 * np.abs(gaps).sum() / len(confidence))


def confusion(gold: np.ndarray, predicted: np.ndarray, num_labels: int) -> np.ndarray:
    """Return the confusion matrix, (labels, labels), with gold labels as rows."""
    return np.bincount(gold * num_labels + predicted, minlength=num_labels**2).reshape(num_labels, num_labels)


def scores(correct: np.ndarray, gold: np.ndarray, predicted: np.ndarray, positive: int | None) -> dict[str, float]:
    """Return the metrics, given how often each label is right, occurs and is predicted; each (labels,).

    `f1` is that of the positive label if there are two labels, otherwise the macro average over the labels that occur
    or are predicted. `balanced_accuracy` is the mean recall of the labels that occur. Undefined values are 0.

    Args:
        correct: the diagonal of the confusion matrix.
        gold: the sums of its rows.
        predicted: the sums of its columns.
        positive: index of the positive label of two; None: there are more.
    """
    total = gold.sum()
    f1 = _ratio(2 * correct, gold + predicted)
    macro = f1.sum() / max(1, np.count_nonzero(gold + predicted))
    recall = _ratio(correct, gold).sum() / max(1, np.count_nonzero(gold))
    covariance = correct.sum() * total - gold @ predicted
    spread = math.sqrt((total**2 - predicted @ predicted) * (total**2 - gold @ gold))
    values = {
        "accuracy": correct.sum() / total,
        "f1": macro if positive is None else f1[positive],
        "f1_macro": macro,
        "balanced_accuracy": recall,
        "matthews_correlation": covariance / spread if spread > 0 else 0.0,
    }
    return {name: 100 * float(value) for name, value in values.items()}


def measure(gold: np.ndarray, predicted: np.ndarray, num_labels: int, positive: int = 1) -> Measure:
    """Return a function from examples to metrics; see `scores`.

    It takes time and memory for the examples, and not for pairs of labels: it counts the pairs that occur.

    Args:
        gold, predicted: indices of the labels, (examples,).
        num_labels: number of labels.
        positive: index of the positive label of two.
    """
    cells, cell = np.unique(gold * np.int64(num_labels) + predicted, return_inverse=True)  # (cells,), (examples,)
    rows, columns = np.divmod(cells, num_labels)
    binary = positive if num_labels == 2 else None
    if binary is None:  # labels that neither occur nor are predicted change no metric
        names, numbers = np.unique(np.concatenate([rows, columns]), return_inverse=True)
        num_labels, (rows, columns) = len(names), np.split(numbers, 2)
    right = rows == columns

    def chosen(examples: np.ndarray) -> dict[str, float]:
        counts = np.bincount(cell[examples], minlength=len(cells))
        correct = np.bincount(rows, np.where(right, counts, 0), num_labels)
        return scores(correct, np.bincount(rows, counts, num_labels), np.bincount(columns, counts, num_labels), binary)

    return chosen


def with_soft_labels(measure: Measure, gold: np.ndarray, probabilities: np.ndarray) -> Measure:
    """Return a measure that also has `cross_entropy`, in nats, and `brier`, from 0 to 2; neither is times 100.

    The Brier score is the squared distance of two distributions, summed over the labels (Brier 1950, equation 2).
    Predicted probabilities that were rounded to 0 count as the smallest float32.

    Args:
        measure: the other metrics.
        gold, probabilities: the distributions of the data and of the model, (examples, labels).
    """
    entropy = -(gold * np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))).sum(1)  # (examples,)
    distance = ((gold - probabilities) ** 2).sum(1)  # (examples,)

    return _with_means(measure, cross_entropy=entropy, brier=distance)


def _with_means(measure: Measure, **values: np.ndarray) -> Measure:
    """Return a measure that also has the means of values of the examples, (examples,) each, by their names."""
    return lambda examples: measure(examples) | {name: float(each[examples].mean()) for name, each in values.items()}


def by_label(
    gold: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray, labels: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return `{precision, recall, f1, average_precision, examples}` of each label.

    Args:
        gold, predicted: which labels the examples have, (examples, labels) bool.
        probabilities: of the labels, (examples, labels).
        labels: their names.
    """
    right, occurring, chosen = (which.sum(0).astype(float) for which in (gold & predicted, gold, predicted))
    ranked = [average_precision(*columns) for columns in zip(gold.T, probabilities.T, strict=True)]
    columns = {
        "precision": 100 * _ratio(right, chosen),
        "recall": 100 * _ratio(right, occurring),
        "f1": 100 * _ratio(2 * right, occurring + chosen),
        "average_precision": 100 * np.array(ranked),
        "examples": occurring,
    }
    return {
        label: {name: float(values[number]) for name, values in columns.items()} for number, label in enumerate(labels)
    }


def f1_by_label(gold: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return the F1 of each label, times 100, (labels,); 0 for one that neither occurs nor is predicted.

    Args:
        gold, predicted: which labels the examples have, (examples, labels) bool.
    """
    return 100 * _ratio(2.0 * (gold & predicted).sum(0), gold.sum(0) + predicted.sum(0))


def average_precision(positive: np.ndarray, scores: np.ndarray) -> float:
    """Return the mean of the precision over the recall, at thresholds between different scores; 0 without positives.

    Args:
        positive: whether each example is positive, (examples,) bool.
        scores: the score of each example, (examples,).
    """
    return _Ranked(positive[:, None], scores[:, None]).mean_average_precision(np.ones(len(scores)))


def measure_label_sets(gold: np.ndarray, predicted: np.ndarray, scores: np.ndarray) -> Measure:
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


def with_soft_label_sets(measure: Measure, gold: np.ndarray, probabilities: np.ndarray) -> Measure:
    """Return a measure that also has `cross_entropy`, in nats, and `brier`, from 0 to 1; neither is times 100.

    Both are means over examples and labels, as of `BCELoss` of PyTorch, and of `brier_score_loss` of scikit-learn for
    each label. Predicted probabilities that were rounded to 0 or 1 count as the smallest float32, and as that from 1.

    Args:
        measure: the other metrics.
        gold, probabilities: those of the data and of the model, (examples, labels).
    """
    entropy, distance = (values.mean(1) for values in _distances(gold, probabilities))  # (examples,) each
    return _with_means(measure, cross_entropy=entropy, brier=distance)


def soft_sets_by_label(
    gold: np.ndarray, probabilities: np.ndarray, labels: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return `{cross_entropy, brier}` of each label; see `with_soft_label_sets`."""
    entropy, distance = (values.mean(0) for values in _distances(gold, probabilities))  # (labels,) each
    return {
        label: {"cross_entropy": float(entropy[number]), "brier": float(distance[number])}
        for number, label in enumerate(labels)
    }


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
    zeros = np.zeros(np.broadcast(above, below).shape)
    return np.divide(above, below, out=zeros, where=below > 0)


def _distances(gold: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the binary cross-entropies and the squared differences, (examples, labels) each."""
    least = np.finfo(np.float32).tiny
    yes, no = np.log(np.maximum(probabilities, least)), np.log(np.maximum(1 - probabilities, least))
    return -(gold * yes + (1 - gold) * no), (gold - probabilities) ** 2
