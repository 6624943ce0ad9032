"""The quality of labels: how far annotators agree, and which labels are probably wrong.

**Agreement** of annotators who chose one of several labels: percent agreement, Cohen's kappa, Krippendorff's alpha.
Input: the votes on each unit, with "" where an annotator did not vote; or sets of labels, whose labels are voted on one
by one, with yes or no, and averaged. Kappa and alpha are 1 for perfect agreement and 0 for that of votes by chance;
they are undefined if all votes are the same. Cohen 1960, equation 1 (two annotators); Krippendorff 2011, "Computing
Krippendorff's Alpha-Reliability", section C (nominal data, any number of annotators, missing votes).

**Confident learning** finds wrong labels by probabilities of models that were not trained on them. Input: the label of
each example, (examples,) int, and the out-of-fold probabilities of classes, (examples, classes). Output: how probable
each label is, the confident joint, and which labels are probably wrong.

Northcutt et al. 2021, "Confident Learning: Estimating Uncertainty in Dataset Labels": the thresholds are equation 2,
the confident joint equation 1, its calibration equation 3; labels are selected by "prune by noise rate" (section 3.2).
As in the reference implementation (cleanlab), an example that reaches the thresholds of several classes is of its most
probable class; a label that is the most probable one is never selected; each class keeps at least one example; and
counts are rounded so that the sums of rows stay the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

import numpy as np

from unmask.support.errors import counted

Votes = Sequence[Sequence[str]]
"""For each unit, the vote of each annotator, "" if there is none."""
Set = Collection[str]
"""The labels that an annotator chose."""
TOLERANCE = 1e-6
"""Probabilities that are smaller than a threshold by less than this reach it."""


def agreement(votes: Votes) -> dict[str, float]:
    """Return `percent_agreement`, `cohen_kappa` if there are two annotators, and `krippendorff_alpha`.

    What is undefined is omitted: all, if no unit has two votes.
    """
    values = {"percent_agreement": percent_agreement(votes), "krippendorff_alpha": krippendorff_alpha(votes)}
    if all(len(unit) == 2 for unit in votes):
        values["cohen_kappa"] = cohen_kappa(votes)
    return {name: value for name, value in values.items() if value is not None}


def percent_agreement(votes: Votes) -> float | None:
    """Return the share of the pairs of votes on the same unit that are equal, times 100; None if there are none."""
    counts = [Counter(filter(None, unit)) for unit in votes]
    pairs = sum(_pairs(count.total()) for count in counts)
    equal = sum(_pairs(number) for count in counts for number in count.values())
    return 100 * equal / pairs if pairs else None


def cohen_kappa(votes: Votes) -> float | None:
    """Return Cohen's kappa of two annotators over the units on which both voted; None if it is undefined."""
    both = [(first, second) for first, second in votes if first and second]
    firsts, seconds = Counter(first for first, _ in both), Counter(second for _, second in both)
    expected = sum(number * seconds[label] for label, number in firsts.items())  # times units squared
    if expected == len(both) ** 2:
        return None
    observed = sum(first == second for first, second in both) * len(both)
    return (observed - expected) / (len(both) ** 2 - expected)


def krippendorff_alpha(votes: Votes) -> float | None:
    """Return Krippendorff's alpha for nominal data; units with fewer than two votes do not count.

    None: it is undefined.
    """
    counts = [count for unit in votes if (count := Counter(filter(None, unit))).total() > 1]
    totals = sum(counts, Counter[str]())
    number = totals.total()
    expected = number**2 - sum(total**2 for total in totals.values())  # pairs of different votes on any units
    if not expected:
        return None
    observed = sum(
        (count.total() ** 2 - sum(votes**2 for votes in count.values())) / (count.total() - 1) for count in counts
    )
    return 1 - (number - 1) * observed / expected


def agreement_by_label(votes: Sequence[Sequence[Set | None]], labels: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the `agreement` of annotators who chose sets of labels on whether a unit has each label.

    Args:
        votes: for each unit, the labels that each annotator chose, None if there is no vote.
        labels: the labels.
    """
    return {
        label: agreement([["" if vote is None else str(label in vote) for vote in unit] for unit in votes])
        for label in labels
    }


def mean_agreement(by_label: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each value over the labels for which it is defined."""
    names = dict.fromkeys(name for values in by_label.values() for name in values)
    return {name: fmean(values[name] for values in by_label.values() if name in values) for name in names}


def describe_agreement(values: Mapping[str, float], units: int) -> str:
    """Return a note about the agreement of annotators on so many units."""
    shown = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
    return f"agreement of annotators on {counted(units, 'example')}: {shown or 'undefined'}"


def self_confidence(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the probability of the label of each example, (examples,): the smaller, the more likely it is wrong."""
    confidence: np.ndarray = probabilities[np.arange(len(labels)), labels]
    return confidence


def confident_joint(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return how many examples with each label (rows) are confidently of each class (columns), (classes, classes) int.

    An example is confidently of a class if its probability is at least the mean of those with that label; if there are
    several such classes, it is of its most probable class. The sum of a row is the number of examples with its label.
    """
    classes = probabilities.shape[1]
    counts = np.bincount(labels, minlength=classes)
    sums = np.bincount(labels, self_confidence(labels, probabilities), minlength=classes)
    thresholds = np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)  # (classes,)
    confident = probabilities >= thresholds - TOLERANCE  # (examples, classes)
    chosen = np.where(confident.sum(1) > 1, probabilities.argmax(1), confident.argmax(1))
    some = confident.any(1)
    joint = np.zeros((classes, classes))
    np.add.at(joint, (labels[some], chosen[some]), 1)
    np.fill_diagonal(joint, np.maximum(joint.diagonal(), 1))
    return _rounded(joint / joint.sum(1, keepdims=True) * counts[:, None])


def noise_rate(joint: np.ndarray) -> float:
    """Return the share of the labels that are wrong, as estimated by a confident joint."""
    return float(1 - joint.trace() / max(1, joint.sum()))


def probably_wrong(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return which labels are probably wrong, (examples,) bool.

    Of the examples with label i, those are selected that have the largest differences between the probabilities of a
    class j and of i, as many as the confident joint counts for (i, j), unless i is the most probable class.
    """
    classes = probabilities.shape[1]
    numbers = _keeping_one(confident_joint(labels, probabilities))  # (labels, classes)
    wrong = np.zeros(len(labels), bool)
    for label in range(classes):
        rows = np.flatnonzero(labels == label)
        if len(rows) <= 1:
            continue
        for other in np.flatnonzero(numbers[label]):
            if other != label:
                margins = probabilities[rows, other] - probabilities[rows, label]
                wrong[rows[np.argsort(-margins, kind="stable")[: numbers[label, other]]]] = True
    wrong[probabilities.max(1) <= self_confidence(labels, probabilities) + TOLERANCE] = False
    return wrong


def _pairs(number: int) -> int:
    return number * (number - 1) // 2


def _keeping_one(joint: np.ndarray) -> np.ndarray:
    """Return a confident joint whose diagonal is at least 1; what is added to it is subtracted from the others."""
    added = np.maximum(1 - joint.diagonal(), 0)
    others = np.maximum(np.count_nonzero(joint, axis=1) - 1, 1)
    numbers = np.maximum(joint - (added / others)[:, None], 0)
    np.fill_diagonal(numbers, joint.diagonal() + added)
    return np.floor(numbers).astype(int)


def _rounded(matrix: np.ndarray) -> np.ndarray:
    """Return a matrix rounded so that the sum of each row, a whole number, stays the same, as int.

    The numbers with the largest remainders are rounded up, of equal ones the last.
    """
    down = np.floor(matrix + TOLERANCE)
    missing = np.rint(matrix.sum(1) - down.sum(1))  # (rows,)
    remainders = np.round(matrix - down, 9)[:, ::-1]
    ranks = np.argsort(np.argsort(-remainders, axis=1, kind="stable"), axis=1)[:, ::-1]
    return (down + (ranks < missing[:, None])).astype(int)
