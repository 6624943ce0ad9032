"""Scores of a regression, times 100 as GLUE prints them: the correlations of Pearson and of Spearman.

Definitions: `scipy.stats.pearsonr` and `spearmanr` (ties get the mean of their ranks), against which the tests hold
these; where all values are the same, a correlation is not defined and counts as 0.
"""

from __future__ import annotations

import numpy as np

from unmask.metrics.intervals import Measure


def scores(gold: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Return the metrics of values, each (examples,)."""
    return {
        "pearson": 100 * _correlation(gold, predicted),
        "spearman": 100 * _correlation(_ranks(gold), _ranks(predicted)),
    }


def measure(gold: np.ndarray, predicted: np.ndarray) -> Measure:
    """Return the metrics of any selection of examples."""
    return lambda examples: scores(gold[examples], predicted[examples])


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    if np.ptp(x) == 0 or np.ptp(y) == 0:  # less the mean, equal values may be a rounding away from 0
        return 0.0
    x, y = x - x.mean(), y - y.mean()
    spread = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / spread) if spread > 0 else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return each value's rank from 1, ties sharing the mean of theirs."""
    _, groups, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[groups]
