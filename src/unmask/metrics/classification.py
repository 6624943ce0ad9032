"""Metrics of classification, times 100 as in GLUE.

Definitions: `accuracy_score`, `balanced_accuracy_score`, `f1_score`, `matthews_corrcoef`, `average_precision_score` and
`precision_recall_fscore_support` of scikit-learn; the tests compare with them.

Calibration is whether what is predicted with probability p is right in a share p of cases: the expected calibration
error over 15 bins of equal width (Guo et al. 2017, equations 3 and 5).
"""

from __future__ import annotations

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


def scores(counts: np.ndarray, positive: int = 1) -> dict[str, float]:
    """Return the metrics of one or many confusion matrices.

    `f1` is that of the positive label if there are two labels, otherwise the macro average over the labels that occur
    or are predicted. `balanced_accuracy` is the mean recall of the labels that occur. Undefined values are 0.

    Args:
        counts: the confusion matrices.
        positive: index of the positive label of two.

    Shape:
        counts: (..., labels, labels); each metric is (...).
    """
    counts = counts.astype(float)
    correct = np.diagonal(counts, axis1=-2, axis2=-1)  # (..., labels)
    gold, predicted = counts.sum(-1), counts.sum(-2)  # (..., labels)
    total = gold.sum(-1)
    f1 = _ratio(2 * correct, gold + predicted)
    macro = _ratio(f1.sum(-1), (gold + predicted > 0).sum(-1))
    recall = _ratio(_ratio(correct, gold).sum(-1), (gold > 0).sum(-1))
    covariance = correct.sum(-1) * total - (gold * predicted).sum(-1)
    spread = np.sqrt((total**2 - (predicted**2).sum(-1)) * (total**2 - (gold**2).sum(-1)))
    return {
        "accuracy": 100 * correct.sum(-1) / total,
        "f1": 100 * (f1[..., positive] if counts.shape[-1] == 2 else macro),
        "f1_macro": 100 * macro,
        "balanced_accuracy": 100 * recall,
        "matthews_correlation": 100 * _ratio(covariance, spread),
    }


def measure(gold: np.ndarray, predicted: np.ndarray, num_labels: int, positive: int = 1) -> Measure:
    """Return a function from examples to metrics; see `scores`.

    Args:
        gold, predicted: indices of the labels, (examples,).
        num_labels: number of labels.
        positive: index of the positive label of two.
    """

    def chosen(examples: np.ndarray) -> dict[str, float]:
        values = scores(confusion(gold[examples], predicted[examples], num_labels), positive)
        return {name: float(value) for name, value in values.items()}

    return chosen


def by_label(
    gold: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray, labels: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return `{precision, recall, f1, average_precision, examples}` of each label.

    Args:
        gold, predicted: indices of the labels, (examples,).
        probabilities: of the labels, (examples, labels).
        labels: their names.
    """
    counts = confusion(gold, predicted, len(labels)).astype(float)
    correct, occurring, chosen = np.diagonal(counts), counts.sum(1), counts.sum(0)
    columns = {
        "precision": 100 * _ratio(correct, chosen),
        "recall": 100 * _ratio(correct, occurring),
        "f1": 100 * _ratio(2 * correct, occurring + chosen),
        "average_precision": np.array(
            [100 * average_precision(gold == number, probabilities[:, number]) for number in range(len(labels))]
        ),
        "examples": occurring,
    }
    return {
        label: {name: float(values[number]) for name, values in columns.items()} for number, label in enumerate(labels)
    }


def average_precision(positive: np.ndarray, scores: np.ndarray) -> float:
    """Return the mean of the precision over the recall, at thresholds between different scores; 0 without positives.

    Args:
        positive: whether each example is positive, (examples,) bool.
        scores: the score of each example, (examples,).
    """
    if not positive.any():
        return 0.0
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)  # equal scores have one threshold
    hits = positive[order].cumsum()[ends]
    return float((hits / (ends + 1) * np.diff(hits, prepend=0)).sum() / positive.sum())


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    zeros = np.zeros(np.broadcast(above, below).shape)
    return np.divide(above, below, out=zeros, where=below > 0)
