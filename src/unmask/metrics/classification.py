"""Metrics of classification, times 100 as in GLUE.

Definitions: `accuracy_score`, `f1_score` and `matthews_corrcoef` of scikit-learn; the tests compare with them.

Calibration: whether what is predicted with probability p is right in a share p of cases.

Guo et al. 2017, equations 3 and 5: the expected calibration error over 15 bins of equal width.


"""

from __future__ import annotations

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


def scores(counts: np.ndarray) -> dict[str, float]:
    """Return the metrics of one or many confusion matrices.

    `f1` is that of the second label if there are two, otherwise the macro average over the labels that occur or are
    predicted. Undefined values are 0.

    Shape:
        counts: (..., labels, labels); each metric is (...).
    """
    counts = counts.astype(float)
    correct = np.diagonal(counts, axis1=-2, axis2=-1)  # (..., labels)
    gold, predicted = counts.sum(-1), counts.sum(-2)  # (..., labels)
    total = gold.sum(-1)
    f1 = _ratio(2 * correct, gold + predicted)
    macro = _ratio(f1.sum(-1), (gold + predicted > 0).sum(-1))
    covariance = correct.sum(-1) * total - (gold * predicted).sum(-1)
    spread = np.sqrt((total**2 - (predicted**2).sum(-1)) * (total**2 - (gold**2).sum(-1)))
    return {
        "accuracy": 100 * correct.sum(-1) / total,
        "f1": 100 * (f1[..., 1] if counts.shape[-1] == 2 else macro),
        "f1_macro": 100 * macro,
        "matthews_correlation": 100 * _ratio(covariance, spread),
    }


def measure(gold: np.ndarray, predicted: np.ndarray, num_labels: int) -> Measure:
    """Return a function from examples to metrics; `gold` and `predicted` are indices of labels, (examples,)."""

    def chosen(examples: np.ndarray) -> dict[str, float]:
        values = scores(confusion(gold[examples], predicted[examples], num_labels))
        return {name: float(value) for name, value in values.items()}

    return chosen


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    zeros = np.zeros(np.broadcast(above, below).shape)
    return np.divide(above, below, out=zeros, where=below > 0)
