"""Calibration: whether what is predicted with probability p is right in a share p of cases.

Guo et al. 2017, equations 3 and 5: the expected calibration error over 15 bins of equal width.
"""

from __future__ import annotations

import numpy as np

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
