"""Metrics of regression, times 100 as in GLUE: the Pearson and the Spearman correlation.

Definitions: `scipy.stats.pearsonr` and `spearmanr` (tied values share their mean rank); the tests compare with them. If
all values are equal, the correlation is undefined and counts as 0.
"""

from __future__ import annotations

import numpy as np

from unmask.metrics.intervals import Measure


def scores(gold: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return the metrics of gold and predicted values, each (examples,)."""
    return {
        "pearson": 100 * _correlation(gold, predicted),
        "spearman": 100 * _correlation(ranks(gold), ranks(predicted)),
    }


def measure(gold: np.ndarray, predicted: np.ndarray) -> Measure:
    """Return a function from examples to metrics."""
    return lambda examples: scores(gold[examples], predicted[examples])


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    if np.ptp(x) == 0 or np.ptp(y) == 0:  # after subtraction of the mean, equal values may differ from 0 by rounding
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    spread = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / spread) if spread > 0 else 0.0


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value, from 1; ties share their mean rank."""
    _, groups, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[groups]
