"""Transferability: how well features suit labels, without training.

Input: features, (examples, width), and labels. Output: a score for each set of features of the same examples; the
higher, the better the features suit. Scores compare encoders on the same data, and mean nothing across data sets.

LogME (You et al. 2021, ICML): the logarithm of the maximum evidence of a Bayesian linear model of the labels given the
features, divided by the number of examples; of several classes, the mean over one against all others. The evidence is
maximized by a fixed point (You et al. 2022, JMLR), with the tolerance and the number of steps of the authors' code
(thuml/LogME, `_fit_fixed_point`). Difference: with fewer examples than features, that code leaves the eigenvalues that
are 0 out of the determinant, so that its value is not that of the formula.

H-score (Bao et al. 2019): how much of the variance of the features is between classes, tr(cov(f)^-1 cov(E[f|y])). The
covariance is estimated with the shrinkage of Ledoit and Wolf 2004 (Ibrahim et al. 2021), because with few examples it
is nearly singular, and the score would only measure how many features there are.
"""

from __future__ import annotations

import math

import numpy as np

STEPS = 11
"""Maximum number of steps to the fixed point."""
TOLERANCE = 1e-3
"""Relative change at which they end."""
TINY = 1e-5
"""Added to denominators, as in the authors' code."""


def log_evidence(features: np.ndarray, targets: np.ndarray) -> float:
    """Return LogME, the mean over targets.

    Args:
        features: (examples, width), float.
        targets: numbers to predict, (examples, targets): for classes 1 and 0, whether an example is of each.

    Raises:
        ValueError: a value is not finite, or there are none.
    """
    x, y = _checked(features), _checked(targets)
    u, singular, _ = np.linalg.svd(x, full_matrices=False)
    real = singular > 1e-10 * singular.max(initial=0)
    sigma, projected = singular[real] ** 2, (u[:, real].T @ y) ** 2  # (rank,), (rank, targets)
    rest = np.maximum((y**2).sum(0) - projected.sum(0), 0)  # (targets,)
    return float(np.mean([_evidence(sigma, *parts, len(x)) for parts in zip(projected.T, rest, strict=True)]))


def _evidence(sigma: np.ndarray, projected: np.ndarray, rest: float, number: int) -> float:
    """Return the maximum evidence of a target, divided by the number of examples.

    Args:
        sigma: the squared singular values of the features above 0, (rank,).
        projected: the squares of the target's projections on their directions, (rank,).
        rest: the squared norm of what is orthogonal to all of them.
        number: number of examples.
    """
    alpha = beta = 1.0  # precision of the weights and of the noise
    for _ in range(STEPS):
        ratio = alpha / beta
        gamma = (sigma / (sigma + ratio)).sum()
        weights = (sigma * projected / (sigma + ratio) ** 2).sum()
        residual = (projected * (ratio / (sigma + ratio)) ** 2).sum() + rest
        alpha, beta = gamma / (weights + TINY), (number - gamma) / (residual + TINY)
        if abs(alpha / beta - ratio) <= TOLERANCE * ratio:
            break
    variances = 1 / beta + sigma / alpha  # of the target along these directions; 1 / beta along all others
    total = np.log(variances).sum() - (number - len(sigma)) * math.log(beta)
    total += (projected / variances).sum() + beta * rest + number * math.log(2 * math.pi)
    return float(-total / 2 / number)


def h_score(features: np.ndarray, classes: np.ndarray) -> float:
    """Return the H-score with shrinkage.

    Args:
        features: (examples, width), float.
        classes: the class of each example, (examples,) int.

    Raises:
        ValueError: a value is not finite, there is one class, there are no more examples than classes, or all features
            are equal.
    """
    x = _checked(features)
    x = x - x.mean(0)
    names, numbers, counts = np.unique(classes, return_inverse=True, return_counts=True)
    if not 2 <= len(names) < len(x):
        raise ValueError(f"{len(x)} examples of {len(names)} classes: there must be two classes, and more examples")
    covariance, shrinkage = shrunk_covariance(x)
    sums = np.zeros((len(names), x.shape[1]))
    np.add.at(sums, numbers, x)
    means = sums / np.sqrt(counts)[:, None]  # class means, weighted by the root of their number of examples
    between = np.einsum("cw,cw->", means @ np.linalg.pinv(covariance, hermitian=True), means) / (len(x) - 1)
    return float((1 - shrinkage) * between)


def shrunk_covariance(centered: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the covariance matrix shrunk towards a multiple of the identity, (width, width), and by how much, 0 to 1.

    Ledoit and Wolf 2004, as scikit-learn's `LedoitWolf`.

    Args:
        centered: features with a mean of 0, (examples, width).

    Raises:
        ValueError: all features are equal.
    """
    number, width = centered.shape
    covariance, squares = centered.T @ centered / number, centered**2
    mean = float(np.trace(covariance)) / width
    if not mean > 0:
        raise ValueError("all features are equal")
    distance = float((covariance**2).sum()) / width - mean**2  # from the multiple of the identity
    noise = float((squares.sum(1) ** 2).sum() / number - (covariance**2).sum()) / width / number
    shrinkage = 1.0 if distance <= 0 else min(1.0, max(0.0, noise / distance))
    return (1 - shrinkage) * covariance + shrinkage * mean * np.eye(width), shrinkage


def _checked(values: np.ndarray) -> np.ndarray:
    """Return values as float64.

    Raises:
        ValueError: one is not finite, or there are none.
    """
    values = np.asarray(values, np.float64)
    if not values.size or not np.isfinite(values).all():
        raise ValueError("features and targets must be finite numbers, of one example or more")
    return values
