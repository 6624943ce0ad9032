"""Agreement of annotators who chose one of several labels: percent agreement, Cohen's kappa, Krippendorff's alpha.

Input: the votes on each unit, with "" where an annotator did not vote; or sets of labels, whose labels are voted on one
by one, with yes or no, and averaged. Kappa and alpha are 1 for perfect agreement and
0 for that of votes by chance; they are undefined if all votes are the same.

Cohen 1960, equation 1 (two annotators); Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", section C
(nominal data, any number of annotators, missing votes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

from unmask.support.errors import counted

Votes = Sequence[Sequence[str]]
"""For each unit, the vote of each annotator, "" if there is none."""
Set = Collection[str]
"""The labels that an annotator chose."""


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


def _pairs(number: int) -> int:
    return number * (number - 1) // 2
