"""What is tuned on examples that were set aside: the temperature of probabilities, and the threshold of a decision.

Input: scores on these examples, and their gold labels. Output: the number that logits are divided by, so that
probabilities match how often the classifier is right (Guo et al. 2017, section 4.2), which changes no decision between
labels; or the best threshold between two answers.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from unmask.metrics.classification import calibration_error


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


Temperature = float | Literal["tuned"]
"""A temperature, or "tuned" until it is found on training examples that are set aside."""

MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 1e3
COLDEST, HOTTEST = 0.05, 20.0
"""The range in which a temperature is looked for."""
_TINY = float(np.finfo(np.float32).tiny)


def check_temperature(temperature: Temperature) -> None:
    """Raise a ValueError for a temperature by which logits are not divided to finite numbers that differ."""
    if temperature != "tuned" and not MIN_TEMPERATURE <= temperature <= MAX_TEMPERATURE:
        raise ValueError(f'temperature must be a number from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}, or "tuned"')


def divisor(temperature: Temperature) -> float:
    """Return what logits are divided by: 1 as long as the temperature is not found."""
    return 1.0 if temperature == "tuned" else temperature


def find_temperature(probabilities: np.ndarray, gold: np.ndarray) -> float:
    """Return the temperature with the smallest cross-entropy; 1 if no finite one has it, as all are right.

    The cross-entropy is convex in the inverse of the temperature: the root of its derivative is found by bisection.

    Args:
        probabilities: those at temperature 1, (examples, classes).
        gold: the index of the gold class, (examples,).
    """
    logits = np.log(np.maximum(probabilities.astype(float), _TINY))
    right = np.take_along_axis(logits, gold[:, None], 1)

    def slope(inverse: float) -> float:
        scaled = inverse * logits
        weights = np.exp(scaled - scaled.max(1, keepdims=True))
        return float(((weights * (logits - right)).sum(1) / weights.sum(1)).sum())

    low, high = 1 / HOTTEST, 1 / COLDEST
    if slope(high) <= 0:
        return 1.0
    if slope(low) >= 0:
        return HOTTEST
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return float(1 / low)


def at_temperature(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Return probabilities, (examples, classes), after their logits are divided by a temperature."""
    return softmax(np.log(np.maximum(probabilities.astype(float), _TINY)) / temperature)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities of logits, both (examples, classes)."""
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(weights / weights.sum(1, keepdims=True))


def describe_calibration(probabilities: np.ndarray, gold: np.ndarray, temperature: Temperature) -> dict[str, float]:
    """Return the expected calibration error of the most probable classes, and without the temperature, if it has one.

    Args:
        probabilities: those at the temperature, (examples, classes).
        gold: the index of the gold class, (examples,).
        temperature: the model's.
    """
    used = divisor(temperature)
    errors = {"expected_calibration_error": _error(probabilities, gold)}
    if used != 1:
        errors["without_temperature"] = _error(at_temperature(probabilities, 1 / used), gold)
        errors["temperature"] = used
    return errors


def _error(probabilities: np.ndarray, gold: np.ndarray) -> float:
    return calibration_error(probabilities.max(1), probabilities.argmax(1) == gold)
