"""Metrics that are functions of means of counts over examples, so that resamples are products of matrices.

Each example has a few counts: for an accuracy whether it is right, for an F1 its true positives and so on, for a
correlation the products of the two values. A metric maps the means of these counts, over any resample of the examples,
to a value in percent. Examples that depend on each other, such as the questions of a dialogue, are summed first
(`add_groups`). Losses, which have no range and of which less is better, are compared as their negatives.

Undefined values are 0, as in `metrics.classification` and `metrics.regression`, whose definitions these are. Spearman's
correlation has no such counts, since the ranks of a resample are its own: use `multibootstrap.resample_measures`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

Metric = Callable[[np.ndarray], np.ndarray]
"""Function from means of counts, (..., counts), to the metric, (...)."""


def mean(counts: np.ndarray) -> np.ndarray:
    """Return the mean of the only count: accuracies from 0 and 100 by example, or negative losses."""
    return counts[..., 0]


def ratio(counts: np.ndarray) -> np.ndarray:
    """Return the first count over the second, times 100: an accuracy over tokens, or over examples in groups."""
    return 100 * _ratio(counts[..., 0], counts[..., 1])


def f1(counts: np.ndarray) -> np.ndarray:
    """Return the F1 of what is right, gold and predicted, such as entities; see `f1_counts`."""
    return 100 * _ratio(2 * counts[..., 0], counts[..., 1] + counts[..., 2])


def f1_macro(counts: np.ndarray) -> np.ndarray:
    """Return the mean F1 of the labels that occur or are predicted; see `label_counts`."""
    right, gold, predicted = _by_label(counts)
    occurs = np.maximum(1, np.count_nonzero(gold + predicted, axis=-1))
    return 100 * _ratio(2 * right, gold + predicted).sum(-1) / occurs


def matthews(counts: np.ndarray) -> np.ndarray:
    """Return Matthews' correlation of two or more labels (Gorodkin 2004); see `label_counts`."""
    right, gold, predicted = _by_label(counts)
    total = gold.sum(-1)
    covariance = right.sum(-1) * total - (gold * predicted).sum(-1)
    spread = (total**2 - (predicted**2).sum(-1)) * (total**2 - (gold**2).sum(-1))
    return 100 * _ratio(covariance, np.sqrt(np.maximum(spread, 0)))


def pearson(counts: np.ndarray) -> np.ndarray:
    """Return Pearson's correlation; see `moments`."""
    x, y, x_squared, y_squared, product = np.moveaxis(counts, -1, 0)
    variances = np.maximum(x_squared - x**2, 0) * np.maximum(y_squared - y**2, 0)
    defined = variances > 1e-24  # equal values, up to rounding
    return 100 * np.where(defined, _ratio(product - x * y, np.sqrt(variances)), 0)


def label_counts(gold: np.ndarray, predicted: np.ndarray, labels: int) -> np.ndarray:
    """Return which label is right, gold and predicted in each example, (seeds, examples, 3 * labels).

    Args:
        gold: the label of each example, (examples,) from 0.
        predicted: the labels that the model of each seed predicted, (seeds, examples).
        labels: number of labels.
    """
    identity = np.eye(labels)
    gold_counts = np.broadcast_to(identity[gold], (*predicted.shape, labels))
    predicted_counts = identity[predicted]
    return np.concatenate([gold_counts * predicted_counts, gold_counts, predicted_counts], -1)


def f1_counts(gold: np.ndarray, predicted: np.ndarray, positive: int = 1) -> np.ndarray:
    """Return whether the positive label is right, gold and predicted in each example, (seeds, examples, 3).

    Args:
        gold: the label of each example, (examples,).
        predicted: the labels that the model of each seed predicted, (seeds, examples).
        positive: the label.
    """
    is_gold = np.broadcast_to(gold == positive, predicted.shape)
    return np.stack([is_gold & (predicted == positive), is_gold, predicted == positive], -1).astype(float)


def moments(gold: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return the moments of gold and predicted values by example, (seeds, examples, 5), for `pearson`.

    Args:
        gold: (examples,) values.
        predicted: (seeds, examples) values.
    """
    x = (gold - gold.mean()) / (gold.std() or 1)  # standardized: squares of large values would lose digits
    y = (predicted - predicted.mean(1, keepdims=True)) / np.maximum(predicted.std(1, keepdims=True), 1e-30)
    x = np.broadcast_to(x, predicted.shape)
    return np.stack([x, y, x**2, y**2, x * y], -1)


def add_groups(counts: np.ndarray, groups: Sequence[Hashable]) -> np.ndarray:
    """Return counts summed over the examples of each group, (seeds, groups, counts).

    Metrics that are ratios of counts stay the same; a mean becomes a `ratio` with a second count of 1 per example.

    Args:
        counts: (seeds, examples, counts).
        groups: the group of each example.
    """
    index = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    sums = np.zeros((counts.shape[0], len(index), counts.shape[2]))
    for example, group in enumerate(groups):
        sums[:, index[group]] += counts[:, example]
    return sums


def _by_label(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    labels = counts.shape[-1] // 3
    return counts[..., :labels], counts[..., labels : 2 * labels], counts[..., 2 * labels :]


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.zeros(np.broadcast_shapes(above.shape, below.shape)), where=below > 0)
