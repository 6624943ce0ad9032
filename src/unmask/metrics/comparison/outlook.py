"""Outlook: where an arm would probably be with a larger budget, extrapolated from its scores at several smaller ones.

Losses fall over data and compute as y = a + b x^-c (Hestness et al. 2017; Hoffmann et al. 2022, section 3.3), and
scores rise likewise; their asymptote a is the uncertain part. For each exponent c of a grid, a and b are those of a
linear regression, and their posterior distribution under flat priors (on y and its slope at the largest budget, and
Jeffreys' on the variance of the noise) is known in closed form. Exponents are weighed by how well they fit, and draws
are omitted that get worse with the budget or whose asymptote is out of bounds. Negative exponents are included, since
accuracies often gain as much, or more, with each doubling of the budget while these are small.

The interval is the middle 80 % of what one more run would get, noise included. Curves are no exact power laws: the
noise has a floor, and the error of a tenfold extrapolation the standard deviation `DRIFT`. `benchmarks/outlook.py`
hides the last points of real curves and counts how many lie in the intervals. Where a curve has not begun to rise, as
the F1 of a rare label at first, nothing shows that it will, and intervals are too low.

Budgets are those of finished runs: in the middle of a larger run, the learning rate has not decayed, and its loss is
above that of a run that ends there. Everything here is an extrapolation and must be called so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unmask.support.errors import UserError

EXPONENTS = np.concatenate([np.linspace(-0.2, 1.0, 50), np.linspace(1.25, 3.0, 8)])
"""Values of c, none of them 0. Few are above 1, which only scores have that have almost reached their asymptote."""
CONFIDENCE = 0.8
DRIFT = 0.25
"""Standard deviation of the error of the power law after a tenfold extrapolation, in shares of the range of scores."""
FLOOR = 0.02
"""Least standard deviation of the noise, in shares of the range of scores."""
MIN_BUDGETS = 3
DRAWS = 4000
MIN_DRAWS = 100
"""Number of possible draws, of ten times `DRAWS`, with which scores are extrapolated."""


@dataclass(frozen=True)
class Outlook:
    """Extrapolations of an arm's scores.

    Attributes:
        scores: median of what a run would get at each target, (targets,).
        low: lower ends of the 80 % intervals, (targets,).
        high: their upper ends, (targets,).
    """

    scores: np.ndarray
    low: np.ndarray
    high: np.ndarray


def extrapolate(
    budgets: Sequence[float],
    scores: Sequence[float],
    targets: Sequence[float],
    *,
    bounds: tuple[float, float],
    less_is_better: bool = False,
    seed: int = 0,
) -> Outlook:
    """Extrapolate scores to larger budgets.

    Args:
        budgets: the budget of each run, (runs,): `MIN_BUDGETS` different ones or more, and runs of several seeds for
            each if there are any.
        scores: score or loss of each run at the end of its budget, (runs,).
        targets: larger budgets.
        bounds: least and largest value that there is, such as (0, 100), or (0, loss of guessing).
        less_is_better: the scores are losses.
        seed: of the draws.

    Raises:
        UserError: there are too few different budgets, scores do not improve with them, or are all the same, a value
            is not finite or out of bounds, or a budget is not positive.
    """
    x, y = np.asarray(budgets, float), np.asarray(scores, float)
    _check(x, y, bounds)
    if not less_is_better:
        flipped = extrapolate(
            budgets, (-y).tolist(), targets, bounds=(-bounds[1], -bounds[0]), less_is_better=True, seed=seed
        )
        return Outlook(-flipped.scores, -flipped.high, -flipped.low)
    rng, unit = np.random.default_rng(seed), max(float(np.ptp(y)), 1e-9)
    at = np.asarray(targets, float) / x.max()
    exponents, ends, slopes, noises = _draw(x / x.max(), y, bounds[0], unit, rng)
    ideal = ends[:, None] + slopes[:, None] * _shape(at, exponents[:, None])  # (draws, targets)
    drift = DRIFT * unit * np.log10(np.maximum(at, 1.0))
    spread = np.hypot(np.maximum(noises, FLOOR * unit)[:, None], drift)
    drawn = np.clip(ideal + spread * rng.standard_normal(ideal.shape), *bounds)
    low, middle, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, 0.5, (1 + CONFIDENCE) / 2], axis=0)
    return Outlook(middle, low, high)


def _shape(x: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """Return (x^-c - 1) / c, which falls from 0 at the largest budget, where x is 1; -log(x) for c = 0."""
    return np.expm1(-exponent * np.log(x)) / exponent


def _draw(
    x: np.ndarray, y: np.ndarray, lowest: float, unit: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw exponents, values and slopes at the largest budget, and deviations of the noise, up to `DRAWS` of each."""
    curves = _shape(x, EXPONENTS[:, None])  # (exponents, runs)
    centered = curves - curves.mean(1, keepdims=True)
    squares = (centered**2).sum(1)
    slopes = centered @ y / squares
    residuals = ((y - y.mean() - slopes[:, None] * centered) ** 2).sum(1) + (FLOOR * unit) ** 2
    degrees = len(y) - 2
    log_weights = -np.log(squares) / 2 - degrees / 2 * np.log(residuals)
    weights = np.exp(log_weights - log_weights.max())
    chosen = rng.choice(len(weights), 10 * DRAWS, p=weights / weights.sum())
    noises = np.sqrt(residuals[chosen] / rng.chisquare(degrees, len(chosen)))
    slopes = slopes[chosen] + noises / np.sqrt(squares[chosen]) * rng.standard_normal(len(chosen))
    means = y.mean() + noises / math.sqrt(len(y)) * rng.standard_normal(len(chosen))
    ends, exponents = means - slopes * curves.mean(1)[chosen], EXPONENTS[chosen]
    is_bounded = (exponents < 0) | (ends - slopes / exponents >= lowest)  # the asymptote, if there is one
    index = np.flatnonzero((slopes >= 0) & is_bounded)[:DRAWS]
    if len(index) < MIN_DRAWS:
        raise UserError("scores do not improve with the budget", remedy="look at the runs before extrapolating")
    return exponents[index], ends[index], slopes[index], noises[index]


def _check(x: np.ndarray, y: np.ndarray, bounds: tuple[float, float]) -> None:
    number = len(np.unique(x))
    if number < MIN_BUDGETS:
        raise UserError(
            f"scores at {number} budgets cannot be extrapolated", remedy=f"train with {MIN_BUDGETS} or more"
        )
    if len(x) != len(y) or not (np.isfinite(y).all() and (x > 0).all() and np.isfinite(x).all()):
        raise UserError("a score is not finite, or a budget not above 0", remedy="leave out the runs that failed")
    if not all(bounds[0] <= value <= bounds[1] for value in y) or not all(map(math.isfinite, bounds)):
        raise UserError(f"a score is not from {bounds[0]} to {bounds[1]}", remedy="give the bounds of the metric")
    if len(y) and not np.ptp(y):
        raise UserError("all scores are the same, whatever the budget")
