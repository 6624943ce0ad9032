"""The best threshold of a decision between two answers, given the scores of both on examples that were set aside."""

from __future__ import annotations

import numpy as np


def find_threshold(margins: np.ndarray, below: np.ndarray, above: np.ndarray) -> float:
    """Return the threshold with the best total score: the midpoint between the margins of two examples.

    Among equally good thresholds, return the one nearest to 0.

    Args:
        margins: the quantity that is compared with the threshold, (examples,).
        below: the score of each example if its margin is at most the threshold, (examples,).
        above: its score otherwise, (examples,).
    """
    order = np.argsort(margins, kind="stable")
    margins, below, above = margins[order], below[order], above[order]
    totals = np.concatenate([[0], below.cumsum()]) + np.concatenate([above[::-1].cumsum()[::-1], [0]])
    between = np.concatenate([[margins[0] - 1], (margins[1:] + margins[:-1]) / 2, [margins[-1] + 1]])
    possible = np.concatenate([[True], margins[1:] > margins[:-1], [True]])
    best = np.flatnonzero(possible & (totals >= totals[possible].max() - 1e-9))
    return float(between[best[np.abs(between[best]).argmin()]])
