"""What is tuned on examples that were set aside: the temperature of probabilities, and thresholds of decisions.

Input: scores on these examples, and their gold labels. Output: the number that logits are divided by, so that
probabilities match how often the classifier is right (Guo et al. 2017, section 4.2; with targets that are
not certain, as in Platt 1999, section 2.2), which changes no decision between labels; the best threshold between two
answers; or the probabilities that labels need to be predicted, which change no probability.

A rare label seldom has a probability above one half, even where a model ranks its texts first: the threshold with the
best F1 is lower, half of that F1 if probabilities are calibrated (Lipton et al. 2014, theorem 1).

Of labels that exclude each other, the one with the largest ratio of probability to threshold is predicted. For two
labels, whose thresholds sum to 1, that is the one whose probability exceeds its threshold. As thresholds, powers of the
labels' shares of the examples are the logit adjustment of Menon et al. 2021, equation 9. The fourth root is the default
where a label is rare: it needs no examples to choose by, of which a rare label has too few. docs/classification.md
states on which splits of training data it was chosen.

The F1 of thresholds that are tuned is computed from expected labels, which lie
between the gold labels and the probabilities: with n examples of a label, each example has it to the degree

    (n gold + EVIDENCE probability) / (n + EVIDENCE)

With few of them, the threshold is the one with the best F1 that the probabilities themselves predict; with many, the
one with the best F1 of the examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from unmask.metrics.classification import calibration_error, f1_by_label
from unmask.support.errors import UserError, counted
from unmask.support.messages import setting

Temperature = float | Literal["tuned"]
"""A temperature, or "tuned" until it is found on training examples that are set aside."""
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 1e3
COLDEST, HOTTEST = 0.05, 20.0
"""The range in which a temperature is looked for."""
UNKNOWN = 8
"""Number of examples that might have any label; see `smoothed`. docs/fine-tuning.md states by what it was chosen."""
_TINY = float(np.finfo(np.float32).tiny)
CALIBRATION_ERROR = "expected_calibration_error"
"""Name of the calibration error of probabilities as they are predicted; see `describe_calibration`."""
RARE = 0.02
"""Ratio of the examples of a label to those of the most frequent one, or to all others, below which it is rare."""
POWER = 0.25
"""Power of the labels' shares that is their threshold by default."""
POWERS = np.arange(0.0, 1.51, 0.05)
"""The powers that are tried."""
EVIDENCE = 30.0
"""Number of examples of a label that count as much as the probabilities."""
LEAST = 1e-9
"""Smallest distance of a chosen threshold from 0 and from 1."""
MAX_DESCRIBED = 10
"""Maximum number of labels whose F1 is printed."""
Threshold = float | tuple[float, ...] | Literal["tuned"] | None
"""A threshold of all labels, or one of each, in the model's order; "tuned" or None until they are chosen."""


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


def check_temperature(temperature: Temperature) -> None:
    """Raise a ValueError for a temperature by which logits are not divided to finite numbers that differ."""
    if temperature != "tuned" and not MIN_TEMPERATURE <= temperature <= MAX_TEMPERATURE:
        raise ValueError(f'temperature must be a number from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}, or "tuned"')


def divisor(temperature: Temperature) -> float:
    """Return what logits are divided by: 1 as long as the temperature is not found."""
    return 1.0 if temperature == "tuned" else temperature


def find_temperature(probabilities: np.ndarray, gold: np.ndarray) -> float:
    """Return the temperature with the smallest cross-entropy with `smoothed` targets.

    The cross-entropy is convex in the inverse of the temperature: the root of its derivative is found by bisection.

    Args:
        probabilities: those at temperature 1, (examples, classes).
        gold: the index of the gold class, (examples,) int, or the weight of each class, (examples, classes); the weight
            of an example is the sum of its row.
    """
    logits = np.log(np.maximum(probabilities.astype(float), _TINY))
    gold = np.eye(logits.shape[1])[gold] if gold.ndim == 1 else gold.astype(float)
    weight = gold.sum(1, keepdims=True)
    expected = (weight * smoothed(gold / weight) * logits).sum()

    def slope(inverse: float) -> float:
        scaled = inverse * logits
        return float((weight * softmax(scaled) * logits).sum() - expected)

    low, high = 1 / HOTTEST, 1 / COLDEST
    if slope(high) <= 0:
        return COLDEST
    if slope(low) >= 0:
        return HOTTEST
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return float(1 / low)


def smoothed(targets: np.ndarray) -> np.ndarray:
    """Return targets that are as sure as their number makes one: as if `UNKNOWN` others had said nothing.

    So a few predictions, all of which are right, do not make all others certain. The others might have any label that
    an example has: one without examples has next to no probability, which a temperature should not raise. (Of two
    classes with as many examples each, the targets of Platt 1999 are those with half as many others.)

    Args:
        targets: the probability of each class, (examples, classes), at least two classes.
    """
    examples, classes = targets.shape
    known = targets.any(0)
    if known.sum() < 2:
        known = np.ones(classes, bool)
    return np.asarray((examples * targets + UNKNOWN * known / known.sum()) / (examples + UNKNOWN))


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
    errors = {CALIBRATION_ERROR: _error(probabilities, gold)}
    if used != 1:
        errors["without_temperature"] = _error(at_temperature(probabilities, 1 / used), gold)
        errors["temperature"] = used
    return errors


def check_thresholds(threshold: Threshold) -> None:
    """Raise a ValueError for thresholds that are no probabilities between 0 and 1."""
    values = threshold if isinstance(threshold, tuple) else () if threshold in (None, "tuned") else (threshold,)
    if not all(0 < value < 1 for value in values):  # type: ignore[operator]
        raise ValueError("a threshold must be above 0 and below 1")


def check_number(threshold: Threshold, labels: Sequence[str]) -> None:
    """Check that there are as many thresholds as labels, if each has its own.

    Raises:
        UserError: there are more or fewer.
    """
    if isinstance(threshold, tuple) and len(threshold) != len(labels):
        raise UserError(
            f"{counted(len(threshold), 'threshold')} for {len(labels)} labels",
            remedy=f"give one each for {', '.join(labels)}",
        )


def threshold_of(threshold: Threshold) -> float:
    """Return the threshold of all labels: one half until it is chosen."""
    return threshold if isinstance(threshold, float) else 0.5


def by_shares(shares: np.ndarray, power: float = POWER) -> np.ndarray:
    """Return a power of the shares of labels, scaled to sum to 1, (labels,); those of no example have the least."""
    thresholds = np.maximum(shares, shares[shares > 0].min(initial=1.0)) ** power
    return np.asarray(thresholds / thresholds.sum())


def settled_threshold(
    threshold: Threshold, labels: Sequence[str], counts: np.ndarray, positive: str, *, plain: bool
) -> Threshold:
    """Return the thresholds of labels that exclude each other, or "tuned"; None or 0.5 if they have none.

    Args:
        threshold: what was asked for; None: by default.
        labels: their names.
        counts: the number of training examples of each, (labels,).
        positive: the positive label of two, which a single threshold is of.
        plain: whether the loss treats all examples alike.

    Raises:
        UserError: there are more or fewer thresholds than labels.
    """
    if threshold is None:
        rare = plain and counts[counts > 0].min() < RARE * counts.max()
        return tuple(by_shares(counts / counts.sum()).tolist()) if rare else None
    if isinstance(threshold, float) and threshold != 0.5:
        if len(labels) != 2:
            raise UserError(
                f"{setting('task.threshold', threshold)} is for two labels, but there are {len(labels)}",
                remedy=f"give one each for {', '.join(labels)}",
            )
        return tuple(threshold if label == positive else 1 - threshold for label in labels)
    check_number(threshold, labels)
    return threshold


def best_threshold(gold: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the threshold of all labels with the best micro F1: the midpoint between two probabilities.

    Among equally good ones, return the one nearest to one half; where nothing is right, one half.

    Args:
        gold: whether each example has each label, or to what degree, (examples, labels).
        probabilities: (examples, labels).
    """
    flat = probabilities.reshape(-1)
    order = np.argsort(-flat, kind="stable")
    ranked, right = flat[order], gold.reshape(-1)[order].cumsum()
    f1 = 2 * right / (np.arange(1, len(ranked) + 1) + right[-1])
    below = np.append(ranked[1:], 0.0)
    possible = ranked > below
    best = np.flatnonzero(possible & (f1 >= f1[possible].max(initial=0.0) - 1e-12))
    if not right[-1] or not len(best):
        return 0.5
    between = (ranked[best] + below[best]) / 2
    return float(np.clip(between[np.abs(between - 0.5).argmin()], LEAST, 1 - LEAST))


def expected_labels(gold: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return to what degree each example has each label; see the module. All are (examples, labels)."""
    counts = gold.sum(0)
    return np.asarray((counts * gold + EVIDENCE * probabilities) / (counts + EVIDENCE))


def label_thresholds(gold: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the threshold of each label with the best F1 of the expected labels, (labels,).

    Args:
        gold, probabilities: (examples, labels).
    """
    expected = expected_labels(gold, probabilities)
    columns = zip(expected.T, probabilities.T, strict=True)
    return np.array([best_threshold(column, scores) for column, scores in columns])


def exclusive_thresholds(gold: np.ndarray, probabilities: np.ndarray, positive: int | None) -> np.ndarray:
    """Return the thresholds of labels that exclude each other, (labels,), which sum to 1.

    Of two labels, they have the best F1 of the positive one; of more, they are the power of the labels' shares with the
    best macro F1.

    Args:
        gold: which label each example has, (examples, labels) of 0 and 1.
        probabilities: (examples, labels).
        positive: index of the positive label of two; None: there are more.
    """
    if positive is not None:
        threshold = label_thresholds(gold[:, [positive]], probabilities[:, [positive]])[0]
        return np.where(np.arange(2) == positive, threshold, 1 - threshold)
    expected, shares = expected_labels(gold, probabilities), probabilities.mean(0)
    counts, labels = expected.sum(0), len(shares)

    def macro_f1(power: float) -> float:
        chosen = (probabilities / by_shares(shares, power)).argmax(1)  # (examples,)
        right = np.bincount(chosen, np.take_along_axis(expected, chosen[:, None], 1)[:, 0], labels)
        return float((2 * right / (np.bincount(chosen, minlength=labels) + counts)).mean())

    return by_shares(shares, float(POWERS[int(np.argmax([macro_f1(power) for power in POWERS]))]))


def describe_thresholds(labels: Sequence[str], thresholds: Sequence[float]) -> str:
    """Return a line about the lowest thresholds of labels, and how to do without."""
    lowest = sorted(zip(thresholds, labels, strict=True))[:MAX_DESCRIBED]
    shown = ", ".join(f"{label} {threshold:.3g}" for threshold, label in lowest)
    others = f", and {len(labels) - MAX_DESCRIBED} higher ones" if len(labels) > MAX_DESCRIBED else ""
    return f"thresholds of the labels: {shown}{others}; for the most probable label: {setting('task.threshold', 0.5)}"


def compare(
    labels: Sequence[str], thresholds: np.ndarray, gold: np.ndarray, without: np.ndarray, predicted: np.ndarray
) -> dict[str, dict[str, float]]:
    """Return `{threshold, f1_without, f1}` of each label: the F1, times 100, without and with thresholds.

    Args:
        labels: their names.
        thresholds: (labels,).
        gold, without, predicted: which labels examples have and get, (examples, labels) bool.
    """
    columns = (thresholds, f1_by_label(gold, without), f1_by_label(gold, predicted))
    return {
        label: dict(zip(("threshold", "f1_without", "f1"), values, strict=True))
        for label, values in zip(labels, np.stack(columns, 1).tolist(), strict=True)
    }


def describe_effect(compared: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a line about what thresholds gain and cost, the labels whose F1 they change most first; see `compare`."""
    changes = {label: of["f1"] - of["f1_without"] for label, of in compared.items()}
    order = sorted(changes, key=lambda label: -abs(changes[label]))
    shown = [
        f"{label} {compared[label]['f1_without']:.1f} -> {compared[label]['f1']:.1f} "
        f"(threshold {compared[label]['threshold']:.3g})"
        for label in order[:MAX_DESCRIBED]
    ]
    others = f", and {len(order) - MAX_DESCRIBED} other labels" if len(order) > MAX_DESCRIBED else ""
    return f"F1 without and with thresholds: {', '.join(shown)}{others}"


def _error(probabilities: np.ndarray, gold: np.ndarray) -> float:
    return calibration_error(probabilities.max(1), probabilities.argmax(1) == gold)
