"""Confidence intervals of metrics and significance of differences between models: the bootstrap over examples.

A metric of a data set is anything that can be computed from any selection of its examples (a `Measure`), so that the
same resampling works for accuracies, correlations and entity scores. Examples that depend on each other, such as the
questions of a dialogue, are resampled together.

The percentiles of resamples hold only in the middle of a metric's range: where all examples are right, every resample
is, and the interval would be a point. Intervals of metrics with a range are therefore Wilson's, for as many independent
examples as would vary as much as the resamples do. For an accuracy these are the examples; for an F1, or for questions
of dialogues, they are fewer or more.

Likewise a difference of two models that agree on all examples does not vary between resamples. Intervals of differences
of these metrics are therefore computed as if there were two more examples: one in which only the first model is right,
and one in which only the second is. For accuracies this is the adjusted Wald interval of Bonett and Price.

Metrics without a range, such as bits per character, are often those of few documents, of which resamples show too
little: n of them have (n - 1)/n of the variance, and say nothing of how uncertain it is. Their intervals, also of
differences, have Student's quantile for one degree of freedom less than there are examples.

Wilson 1927 (the interval of a proportion); Korn and Graubard 1998 (the effective number of examples); Efron and
Tibshirani 1993, chapter 12 (bootstrap-t intervals); Koehn 2004 (two systems on the same resampled examples); Bonett and
Price 2012, "Adjusted Wald confidence interval for a difference of binomial proportions based on paired data".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache

import numpy as np

Measure = Callable[[np.ndarray], dict[str, float]]
"""Function from indices of examples, which may repeat, to metrics."""

RESAMPLES = 2000
Z = 1.959964
"""Quantile of the normal distribution for intervals of 95 %."""
ROUNDING = 1e-20
"""Variance of equal shares by rounding."""
SHARES = frozenset(
    {
        *("accuracy", "balanced_accuracy", "f1", "f1_macro", "f1_micro", "precision", "recall", "share"),
        *("precision_macro", "recall_macro"),
        *("mean_average_precision", "reciprocal_rank", "exact_match"),
        *("ndcg@10", "mrr@10", "map", "recall@10", "recall@100"),
        *("heq_q", "heq_d", "yes_no", "followup", "unanswerable", "unfiltered_f1", "human_f1"),
        *(f"{part}{kind}" for part in ("support_", "joint_") for kind in ("exact_match", "f1", "precision", "recall")),
    }
)
"""Metrics from 0 to 100."""
CORRELATIONS = frozenset({"matthews_correlation", "pearson", "spearman"})
"""Metrics from -100 to 100."""


def measure_all(measure: Measure, number: int) -> dict[str, float]:
    """Return the metrics of all `number` examples."""
    return measure(np.arange(number))


def intervals(
    measure: Measure, number: int, *, seed: int = 0, groups: Sequence[Hashable] | None = None
) -> dict[str, list[float]]:
    """Return the 95 % confidence interval of each metric, [low, high].

    Metrics that are neither in `SHARES` nor in `CORRELATIONS` get Student's interval.

    Args:
        measure: the metrics.
        number: number of examples.
        seed: seed of the resampling.
        groups: the group of each example: groups are resampled as wholes. None: each example is one.
    """
    drawn, metrics = resampled([measure], number, seed, groups)[0], measure_all(measure, number)
    independent = len(set(groups)) if groups else number
    return {name: _interval(name, metrics[name], values, independent) for name, values in drawn.items()}


def wilson(share: float, number: float, *, z: float = Z) -> tuple[float, float]:
    """Return the interval of a share, 0 to 1, that was observed in `number` independent examples.

    Args:
        share: the share.
        number: number of examples.
        z: quantile of the normal distribution.
    """
    center, below = share + z**2 / (2 * number), 1 + z**2 / number
    half = z * math.sqrt(share * (1 - share) / number + z**2 / (4 * number**2))
    return max(0.0, min(share, (center - half) / below)), min(1.0, max(share, (center + half) / below))  # rounded


def mean_share(groups: Sequence[np.ndarray]) -> tuple[float, float, float]:
    """Return the mean over groups of their mean shares, and its 95 % interval, as `(mean, low, high)`.

    The groups are fixed, and only the examples in them vary (a stratified sample): the variance of the mean is the sum
    of the variances of the groups' means, divided by the square of their number. The interval is Wilson's, for as many
    independent examples as would vary as much.

    Args:
        groups: the values of each group, from 0 to 1, such as whether examples are right.
    """
    mean = float(np.mean([values.mean() for values in groups]))
    variance = sum(float(values.var()) / max(1, len(values) - 1) for values in groups) / len(groups) ** 2
    spread = mean * (1 - mean)
    return mean, *wilson(mean, spread / variance if min(spread, variance) > ROUNDING else sum(map(len, groups)))


def _interval(name: str, value: float, drawn: np.ndarray, number: int) -> list[float]:
    """Return the interval of a metric; `number` is how many examples, or groups of them, were resampled."""
    low = lowest(name)
    if low is None:
        return _student_interval(value, _standard_error(drawn, number), number)
    share = min(1.0, max(0.0, (value - low) / (100 - low)))
    return [low + (100 - low) * end for end in wilson(share, effective_number(value, float(drawn.var()), number, low))]


def _standard_error(drawn: np.ndarray, number: int) -> float:
    """Return the standard error of a metric, from its resamples of `number` independent examples."""
    return math.sqrt(float(drawn.var()) * number / max(1, number - 1))


def _student_interval(value: float, error: float, number: int) -> list[float]:
    """Return the 95 % interval of a metric without a range, given its standard error over `number` examples."""
    half = student_quantile(0.05, max(1, number - 1)) * error
    return [value - half, value + half]


def lowest(name: str) -> float | None:
    """Return the lower end of a metric's range, of which 100 is the upper one; None if it has no range."""
    return -100.0 if name in CORRELATIONS else 0.0 if name in SHARES else None


def effective_number(value: float, variance: float, number: float, low: float) -> float:
    """Return the number of independent examples in which a metric would vary as much as its resamples do.

    Args:
        value: the metric, from `low` to 100.
        variance: that of the resamples.
        number: number of examples, which is returned if no resample varies.
        low: see `lowest`.
    """
    share, variance = (value - low) / (100 - low), variance / (100 - low) ** 2
    spread = share * (1 - share)
    return spread / variance if spread > 0 and variance > ROUNDING else number  # at an edge, no resample varies


def differences(
    first: Measure, second: Measure, number: int, *, seed: int = 0, groups: Sequence[Hashable] | None = None
) -> dict[str, dict[str, object]]:
    """Compare two models on the same `number` examples, metric by metric; see `intervals`.

    Returns:
        For each metric, `difference` (first minus second), `interval` (95 %, [low, high]) and `p`, from 1 / `RESAMPLES`
        to 1: below 0.05 if the interval is without 0.
    """
    first_drawn, second_drawn = resampled([first, second], number, seed, groups)
    first_all, second_all = measure_all(first, number), measure_all(second, number)
    independent = len(set(groups)) if groups else number
    differences: dict[str, dict[str, object]] = {}
    for name in first_all:
        difference, drawn = first_all[name] - second_all[name], first_drawn[name] - second_drawn[name]
        lower_end = lowest(name)
        if lower_end is not None:
            effective = min(
                effective_number(first_all[name], float(first_drawn[name].var()), independent, lower_end),
                effective_number(second_all[name], float(second_drawn[name].var()), independent, lower_end),
            )
            width = 100 - lower_end
            low, high, p = adjusted_wald(difference / width, float(drawn.var()) / width**2, effective)
            ends = [width * low, width * high]
        else:
            error = _standard_error(drawn, independent)
            ends = _student_interval(difference, error, independent)
            p = student_tail(abs(difference) / error, max(1, independent - 1)) if error else float(not difference)
        p = float(min(1.0, max(p, 1 / RESAMPLES)))
        differences[name] = {"difference": difference, "interval": ends, "p": p}
    return differences


def adjusted_wald(difference: float, variance: float, number: float) -> tuple[float, float, float]:
    """Return the 95 % interval of a difference of paired shares, -1 to 1, and the p-value of no difference.

    Bonett and Price 2012: two examples are added, in each of which another one of the models alone is right.

    Args:
        difference: share of the first model minus that of the second.
        variance: its sampling variance: for accuracies, the share of examples in which one model alone is right, minus
            the square of the difference, divided by `number`.
        number: number of independent examples.
    """
    center, variance = add_two_examples(difference, variance, number)
    error = math.sqrt(variance)
    low, high = max(-1.0, center - Z * error), min(1.0, center + Z * error)
    return min(difference, low), max(difference, high), math.erfc(abs(center) / error / math.sqrt(2))


def add_two_examples(difference: float, variance: float, number: float, *, runs: int = 1) -> tuple[float, float]:
    """Return a difference of paired shares and its variance as if there were two more examples; see `adjusted_wald`.

    Args:
        difference: as of `adjusted_wald`.
        variance: as of `adjusted_wald`.
        number: number of independent examples.
        runs: number of runs of each model over which shares are means: in each of the two examples, another one of the
            models is right in one of its runs.
    """
    total = number + 2
    center = difference * number / total
    squares = (number * (number * variance + difference**2) + 2 / runs**2) / total  # mean square of differences
    return center, (squares - center**2) / total


def student_quantile(level: float, degrees: int) -> float:
    """Return the quantile of Student's distribution that is exceeded in absolute value with probability `level`.

    `level` is from 1e-7 to 1. It is interpolated to 4 digits; NumPy has no such function.
    """
    degrees = min(degrees, 10_000)  # of which it is the normal one, to 3 digits
    angles, tail = _student_table(degrees)
    return math.sqrt(degrees) * math.tan(float(np.interp(level, tail, angles)))


def student_tail(t: float, degrees: int) -> float:
    """Return the probability that Student's distribution exceeds `t`, 0 or more, in absolute value; 0 below 1e-9."""
    degrees = min(degrees, 10_000)
    angles, tail = _student_table(degrees)
    return float(np.interp(math.atan(t / math.sqrt(degrees)), angles[::-1], tail[::-1]))


@lru_cache
def _student_table(degrees: int) -> tuple[np.ndarray, np.ndarray]:
    """Return angles and the probability that |T| is above √degrees tan(angle); the density of angles is cos^(ν - 1)."""
    angles = np.pi / 2 * (1 - np.linspace(0, 1, 20_001) ** 2)  # descending, dense at π/2
    density = np.cos(angles) ** (degrees - 1)
    tail = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * -np.diff(angles))])
    return angles, tail / tail[-1]


def resampled(
    measures: list[Measure], number: int, seed: int, groups: Sequence[Hashable] | None
) -> list[dict[str, np.ndarray]]:
    """Return, for each measure, its metrics on the same resamples of the examples, (`RESAMPLES`,) each.

    Args:
        measures: the measures.
        number: number of examples.
        seed: of the resampling.
        groups: the group of each example: groups are resampled as wholes. None: each example is one.
    """
    rng = np.random.default_rng(seed)
    members: dict[Hashable, list[int]] = {}
    for example, group in enumerate(groups or ()):
        members.setdefault(group, []).append(example)
    whole = [np.array(indices) for indices in members.values()]
    drawn: list[list[dict[str, float]]] = [[] for _ in measures]
    for _ in range(RESAMPLES):
        chosen = rng.integers(len(whole) or number, size=len(whole) or number)
        chosen = np.concatenate([whole[index] for index in chosen]) if whole else chosen
        for results, measure in zip(drawn, measures, strict=True):
            results.append(measure(chosen))
    return [{name: np.array([row[name] for row in results]) for name in results[0]} for results in drawn]
