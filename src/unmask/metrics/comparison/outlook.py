"""Outlook: where an arm would probably be with a larger budget, extrapolated from its scores at several smaller ones.

Scores or losses are assumed to follow y = a + b x^-c over budgets x (tokens, steps, examples): power laws are what
losses follow over data and compute (Hestness et al. 2017; Hoffmann et al. 2022, section 3.3), and their asymptote a is
the uncertain part. All pairs of a and c on a grid are weighed by how well they fit (Bayes, with b and the variance of
the noise integrated out: b under a flat prior, the variance under Jeffreys'), so that an asymptote that the budgets do
not determine widens the interval. The interval is the middle 80 % of what one more run would get, noise included.

Curves are no exact power laws, and a run with a smaller budget of its own is not a larger run that was stopped: the
learning rate of the latter has not decayed. So the noise has a floor, and errors grow with the distance: each tenfold
extrapolation adds `DRIFT` of the range of scores that were observed. `benchmarks/outlook.py` hides the last points of
real curves and counts how many lie in the intervals.

Everything here is an extrapolation and must be called so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unmask.support.errors import UserError

EXPONENTS = np.geomspace(0.05, 2.0, 40)
"""Values of c."""
ASYMPTOTES = 81
"""Number of values of a."""
CONFIDENCE = 0.8
DRIFT = 0.05
"""Standard deviation of the error of the power law after a tenfold extrapolation, in shares of the range of scores."""
FLOOR = 0.01
"""Least standard deviation of the noise, in shares of the range of scores."""
MIN_BUDGETS = 3
DRAWS = 4000


@dataclass(frozen=True)
class Outlook:
    """Extrapolations of an arm's scores.

    Attributes:
        budgets: to which scores are extrapolated, (targets,).
        scores: median of what a run would get at each, (targets,).
        low: lower ends of the 80 % intervals, (targets,).
        high: their upper ends, (targets,).
    """

    budgets: np.ndarray
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
        UserError: there are too few different budgets, a value is not finite or out of bounds, or a budget is not
            positive.
    """
    x, y = np.asarray(budgets, float), np.asarray(scores, float)
    _check(x, y, bounds)
    if not less_is_better:
        flipped = extrapolate(x, list(-y), targets, bounds=(-bounds[1], -bounds[0]), less_is_better=True, seed=seed)
        return Outlook(flipped.budgets, -flipped.scores, -flipped.high, -flipped.low)
    rng, unit = np.random.default_rng(seed), max(float(np.ptp(y)), 1e-9)
    at = np.asarray(targets, float) / x.max()
    asymptotes, exponents, heights, noises = _draw(x / x.max(), y, bounds[0], unit, rng)
    ideal = asymptotes[:, None] + heights[:, None] * at ** -exponents[:, None]  # (draws, targets)
    drift = DRIFT * unit * np.log10(np.maximum(at, 1.0))
    spread = np.hypot(np.maximum(noises, FLOOR * unit)[:, None], drift)
    drawn = np.clip(ideal + spread * rng.standard_normal(ideal.shape), *bounds)
    low, middle, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, 0.5, (1 + CONFIDENCE) / 2], axis=0)
    return Outlook(np.asarray(targets, float), middle, low, high)


def _draw(
    x: np.ndarray, y: np.ndarray, lowest: float, unit: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw asymptotes, exponents, heights and standard deviations of the noise from their posterior, (DRAWS,) each."""
    best = float(y.min())
    room = min(best - lowest, 10 * unit)
    offsets = room * np.linspace(0, 1, ASYMPTOTES) ** 2  # of the asymptote below the best score, dense near it
    prior = np.gradient(offsets)  # uniform asymptotes
    grid_a, grid_c = (grid.ravel() for grid in np.meshgrid(best - offsets, EXPONENTS, indexing="ij"))
    curves = x ** -grid_c[:, None]  # (grid, runs)
    squares = (curves**2).sum(1)
    heights = ((y - grid_a[:, None]) * curves).sum(1) / squares
    residuals = ((y - grid_a[:, None] - heights[:, None] * curves) ** 2).sum(1) + (FLOOR * unit) ** 2
    degrees = len(y) - 1
    with np.errstate(divide="ignore"):
        log_weights = np.repeat(np.log(prior), len(EXPONENTS)) - np.log(squares) / 2 - degrees / 2 * np.log(residuals)
    weights = np.where(heights > 0, np.exp(log_weights - log_weights.max()), 0.0)
    chosen = rng.choice(len(weights), DRAWS, p=weights / weights.sum())
    noises = np.sqrt(residuals[chosen] / rng.chisquare(degrees, DRAWS))
    drawn = heights[chosen] + noises / np.sqrt(squares[chosen]) * rng.standard_normal(DRAWS)
    return grid_a[chosen], grid_c[chosen], np.maximum(drawn, 0.0), noises


def _check(x: np.ndarray, y: np.ndarray, bounds: tuple[float, float]) -> None:
    number = len(np.unique(x))
    if number < MIN_BUDGETS:
        raise UserError(f"scores at {number} budgets cannot be extrapolated", remedy=f"train with {MIN_BUDGETS} or more")
    if len(x) != len(y) or not (np.isfinite(y).all() and (x > 0).all() and np.isfinite(x).all()):
        raise UserError("a score is not finite, or a budget not above 0", remedy="leave out the runs that failed")
    if not all(bounds[0] <= value <= bounds[1] for value in y) or not all(map(math.isfinite, bounds)):
        raise UserError(f"a score is not from {bounds[0]} to {bounds[1]}", remedy="give the bounds of the metric")
