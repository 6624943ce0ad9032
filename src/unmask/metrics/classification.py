"""Scores of a classifier, times 100 as GLUE prints them.

Definitions: scikit-learn's `accuracy_score`, `f1_score`, `matthews_corrcoef`, against which the tests hold these.
"""

from __future__ import annotations

import numpy as np

from unmask.metrics.intervals import Measure


def confusion(gold: np.ndarray, predicted: np.ndarray, num_labels: int) -> np.ndarray:
    """Count (gold, predicted) pairs: (labels, labels)."""
    return np.bincount(gold * num_labels + predicted, minlength=num_labels**2).reshape(num_labels, num_labels)


def scores(counts: np.ndarray) -> dict[str, float]:
    """Return the metrics of one or many confusion matrices.

    `f1` is that of the second label where there are two, else the macro mean, which is over the labels that occur or
    are predicted; what is not defined is 0.

    Shape:
        counts: (..., labels, labels); each metric is (...).
    """
    counts = counts.astype(float)
    right = np.diagonal(counts, axis1=-2, axis2=-1)  # (..., labels)
    true, said = counts.sum(-1), counts.sum(-2)  # (..., labels)
    total = true.sum(-1)
    f1 = _ratio(2 * right, true + said)
    macro = _ratio(f1.sum(-1), (true + said > 0).sum(-1))
    covariance = right.sum(-1) * total - (true * said).sum(-1)
    spread = np.sqrt((total**2 - (said**2).sum(-1)) * (total**2 - (true**2).sum(-1)))
    return {
        "accuracy": 100 * right.sum(-1) / total,
        "f1": 100 * (f1[..., 1] if counts.shape[-1] == 2 else macro),
        "f1_macro": 100 * macro,
        "matthews_correlation": 100 * _ratio(covariance, spread),
    }


def measure(gold: np.ndarray, predicted: np.ndarray, num_labels: int) -> Measure:
    """Return the metrics of any selection of examples; `gold` and `predicted` are numbers of labels, (examples,)."""

    def chosen(examples: np.ndarray) -> dict[str, float]:
        found = scores(confusion(gold[examples], predicted[examples], num_labels))
        return {name: float(value) for name, value in found.items()}

    return chosen


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    zeros = np.zeros(np.broadcast(above, below).shape)
    return np.divide(above, below, out=zeros, where=below > 0)
