"""Labels that are probably wrong, found by probabilities of models that were not trained on them: confident learning.

Input: the label of each example, (examples,) int, and the out-of-fold probabilities of classes, (examples, classes).
Output: how probable each label is, the confident joint, and which labels are probably wrong.

Northcutt et al. 2021, "Confident Learning: Estimating Uncertainty in Dataset Labels": the thresholds are equation 2,
the confident joint equation 1, its calibration equation 3; labels are selected by "prune by noise rate" (section 3.2).
As in the reference implementation (cleanlab), an example that reaches the thresholds of several classes is of its most
probable class; a label that is the most probable one is never selected; each class keeps at least one example; and
counts are rounded so that the sums of rows stay the same.
"""

from __future__ import annotations

import numpy as np

TOLERANCE = 1e-6
"""Probabilities that are smaller than a threshold by less than this reach it."""


def self_confidence(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the probability of the label of each example, (examples,): the smaller, the more likely it is wrong."""
    confidence: np.ndarray = probabilities[np.arange(len(labels)), labels]
    return confidence


def confident_joint(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return how many examples with each label (rows) are confidently of each class (columns), (classes, classes) int.

    An example is confidently of a class if its probability is at least the mean of those with that label; if there are
    several such classes, it is of its most probable class. The sum of a row is the number of examples with its label.
    """
    classes = probabilities.shape[1]
    counts = np.bincount(labels, minlength=classes)
    sums = np.bincount(labels, self_confidence(labels, probabilities), minlength=classes)
    thresholds = np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)  # (classes,)
    confident = probabilities >= thresholds - TOLERANCE  # (examples, classes)
    chosen = np.where(confident.sum(1) > 1, probabilities.argmax(1), confident.argmax(1))
    some = confident.any(1)
    joint = np.zeros((classes, classes))
    np.add.at(joint, (labels[some], chosen[some]), 1)
    np.fill_diagonal(joint, np.maximum(joint.diagonal(), 1))
    return _rounded(joint / joint.sum(1, keepdims=True) * counts[:, None])


def noise_rate(joint: np.ndarray) -> float:
    """Return the share of the labels that are wrong, as estimated by a confident joint."""
    return float(1 - joint.trace() / max(1, joint.sum()))


def probably_wrong(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return which labels are probably wrong, (examples,) bool.

    Of the examples with label i, those are selected that have the largest differences between the probabilities of a
    class j and of i, as many as the confident joint counts for (i, j), unless i is the most probable class.
    """
    classes = probabilities.shape[1]
    numbers = _keeping_one(confident_joint(labels, probabilities))  # (labels, classes)
    wrong = np.zeros(len(labels), bool)
    for label in range(classes):
        rows = np.flatnonzero(labels == label)
        if len(rows) <= 1:
            continue
        for other in np.flatnonzero(numbers[label]):
            if other != label:
                margins = probabilities[rows, other] - probabilities[rows, label]
                wrong[rows[np.argsort(-margins, kind="stable")[: numbers[label, other]]]] = True
    wrong[probabilities.max(1) <= self_confidence(labels, probabilities) + TOLERANCE] = False
    return wrong


def _keeping_one(joint: np.ndarray) -> np.ndarray:
    """Return a confident joint whose diagonal is at least 1; what is added to it is subtracted from the others."""
    added = np.maximum(1 - joint.diagonal(), 0)
    others = np.maximum(np.count_nonzero(joint, axis=1) - 1, 1)
    numbers = np.maximum(joint - (added / others)[:, None], 0)
    np.fill_diagonal(numbers, joint.diagonal() + added)
    return np.floor(numbers).astype(int)


def _rounded(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix rounded so that the sum of each row, a whole number, stays the same, as int.

    The numbers with the largest remainders are rounded up, of equal ones the last.
    """
    down = np.floor(matrix + TOLERANCE)
    missing = np.rint(matrix.sum(1) - down.sum(1))  # (rows,)
    remainders = np.round(matrix - down, 9)[:, ::-1]
    ranks = np.argsort(np.argsort(-remainders, axis=1, kind="stable"), axis=1)[:, ::-1]
    return (down + (ranks < missing[:, None])).astype(int)
