"""Means of arms and differences between them, with intervals that hold for few seeds.

A run's score depends on its seed, on the examples, and on both: seed s scores m + a_s + b_i + c_si on example i, with
variances A, B and C. The mean over S seeds and n examples has the variance A/S + B/n + C/(Sn), estimated in parts:

- `examples`, B/n + C/(Sn): the variance of the mean over seeds between resamples of the examples;
- `seeds`, A/S + C/(Sn): the variance between the scores of seeds, divided by S;
- the interaction C/(Sn), which both contain: (mean variance of a single seed between resamples - examples) / (S - 1).

As B is no less than 0, the part of the examples in a mean is at least the mean variance of a single seed divided by S:
few seeds that err on opposite examples, as models that have learned nothing may, would show no variance otherwise. In
differences, whose B may be almost 0, this would make intervals too wide.

Half the width of an interval is the root of t² max(seeds - 0.6 interaction, 0) + z² examples, where t is Student's
quantile for S - 1 degrees of freedom and z the normal one (Howe 1974, equation 3). Percentiles of the multi-bootstrap
are too narrow instead: resampling S seeds shows (S - 1)/S of their variance, and nothing of how uncertain it is.
Subtracting all of the interaction is unbiased, but where little of the variance is due to seeds, three of them often
show none; without subtraction, intervals are too wide. With 0.6, those of normal scores cover 93.2 to 97.7 % for three
seeds or more, whatever the shares of A, B and C; `benchmarks/coverage.py` simulates the coverage for accuracies.

Tests, and intervals at other levels than 95 %, subtract nothing. That makes them conservative, but far out, three seeds
that show little variance by chance count: with 0.6, a family-wise error of 5 % over five arms was up to 19 %. Among
three arms or more with the same three seeds or more, tests moderate the variance of a pair: it is averaged with the
mean one of all pairs, as if this had two to four degrees of freedom (Smyth 2004, section 3, with a fixed prior). Three
seeds have two of their own, with which hardly any difference among five arms is significant.

Metrics without a range have, in place of z, Student's quantile for one degree of freedom less than there are examples;
see `metrics.intervals`.

Arms with the same seeds are paired: the differences by seed are the scores of one arm. Otherwise, the parts of the arms
are added (Welch). Metrics with a range get Wilson's interval, and differences of them two more examples: see
`metrics.intervals`.

Howe 1974, "Approximate confidence limits on the mean of X + Y where X and Y are two tabled independent random
variables"; Owen 2007, "The pigeonhole bootstrap" (variances of resampling rows and columns); Smyth 2004, "Linear models
and empirical Bayes methods for assessing differential expression in microarray experiments".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from unmask.metrics.comparison.multibootstrap import Resampled
from unmask.metrics.intervals import Z, add_two_examples, effective_number, student_quantile, wilson

INTERACTION = 0.6
"""Share of the interaction that is subtracted."""
PRIOR_DEGREES = 4
"""Most degrees of freedom that the mean variance of all pairs counts. More would find more differences, but errors were
up to 14 % where the scores of one arm vary four times as much as those of others."""
LEVEL = 0.05
"""Level of tests; intervals have 1 minus this confidence."""
NORMAL = NormalDist()


class SeedsPart(NamedTuple):
    """The uncertainty of a mean due to the seeds of an arm.

    Attributes:
        variance: A/S + C/(Sn), the variance due to seeds and interaction.
        interaction: C/(Sn).
        degrees: degrees of freedom.
    """

    variance: float
    interaction: float
    degrees: int


@dataclass(frozen=True)
class Estimate:
    """A mean, or a difference of means, and the variances of which its uncertainty consists.

    Attributes:
        value: the estimate.
        center: center of its interval.
        examples: variance due to the examples, with the interaction.
        seeds: the parts due to the seeds of one arm, or of several that are not paired; () if each has one seed.
        most: the largest absolute value that there is; differences of scores in percent are at most 100.
        degrees: degrees of freedom of the examples' part; None: of a normal variable.
    """

    value: float
    center: float
    examples: float
    seeds: tuple[SeedsPart, ...] = ()
    most: float = math.inf
    degrees: int | None = None

    def half_width(self, level: float = LEVEL, *, subtracted: float = INTERACTION) -> float:
        """Return half the width of the interval of confidence 1 - `level`.

        Args:
            level: the level.
            subtracted: share of the interaction that is subtracted from the seeds' part; see the module.
        """
        quantile = NORMAL.inv_cdf(1 - level / 2) if self.degrees is None else student_quantile(level, self.degrees)
        squares = quantile**2 * self.examples
        for part in self.seeds:
            variance = max(0.0, part.variance - subtracted * part.interaction)
            squares += student_quantile(level, part.degrees) ** 2 * variance
        return math.sqrt(squares)

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval, which contains the value."""
        return self._around(self.half_width())

    def interval_at(self, level: float) -> tuple[float, float]:
        """Return the ends of a conservative interval, without 0 only if `p` is below `level`."""
        return self._around(self.half_width(level, subtracted=0.0))

    @property
    def p(self) -> float:
        """The least level at which `interval_at` is without 0, for a two-sided test; 1e-6 or more."""
        low, high = math.log(1e-6), 0.0
        for _ in range(30):
            middle = (low + high) / 2
            is_wide = self.half_width(math.exp(middle), subtracted=0.0) >= abs(self.center)
            low, high = (middle, high) if is_wide else (low, middle)
        return math.exp(high)

    def _around(self, half: float) -> tuple[float, float]:
        low, high = min(self.value, self.center - half), max(self.value, self.center + half)
        return max(low, -self.most), min(high, self.most)


def mean_score(arm: Resampled) -> tuple[float, float, float]:
    """Return the mean of an arm's scores over its seeds, and the ends of its 95 % interval.

    With one seed, the interval is over examples only, as that of `metrics.intervals`.
    """
    estimate = contrast([(1.0, arm)])
    half, value, low = estimate.half_width(), estimate.value, arm.lowest
    if low is None:
        return value, value - half, value + half
    share = min(1.0, max(0.0, (value - low) / (100 - low)))
    number = effective_number(value, half**2, arm.examples / Z**2, low)  # in which a z of 1 is as wide
    ends = [low + (100 - low) * end for end in wilson(share, number, z=1.0)]
    return value, ends[0], ends[1]


def difference(first: Resampled, second: Resampled, *, pooled: SeedsPart | None = None) -> Estimate:
    """Return the mean score of the first arm minus that of the second.

    They are compared on the seeds that both have; if there are none, or one of several, on all of theirs.

    Args:
        first: an arm.
        second: another one.
        pooled: the variance of the average pair (`pooled_seeds`), by which that of this pair is moderated.
    """
    estimate = contrast([(1.0, first), (-1.0, second)])
    if pooled is None:
        return estimate
    (own,) = estimate.seeds
    degrees = own.degrees + pooled.degrees
    variance = (own.degrees * own.variance + pooled.degrees * pooled.variance) / degrees
    return replace(estimate, seeds=(SeedsPart(variance, own.interaction, degrees),))


def pooled_seeds(arms: Sequence[Resampled]) -> SeedsPart | None:
    """Return the seeds' part of the average difference between two of these arms; its degrees are those of a prior.

    None: there are fewer than three arms or seeds, or arms have different seeds.
    """
    seeds = arms[0].seeds
    if min(len(arms), len(seeds)) < 3 or any(set(arm.seeds) != set(seeds) for arm in arms):
        return None
    scores = np.array([arm.of_seeds(seeds).scores for arm in arms])  # (arms, seeds)
    residuals = scores - scores.mean(0) - scores.mean(1, keepdims=True) + scores.mean()
    variance = 2 * (residuals**2).sum() / ((len(arms) - 1) * (len(seeds) - 1)) / len(seeds)
    return SeedsPart(float(variance), 0.0, min(PRIOR_DEGREES, len(arms) - 1))


def contrast(parts: Sequence[tuple[float, Resampled]]) -> Estimate:
    """Return a weighted sum of the mean scores of arms; see the module for its parts.

    Arms that share seeds are compared on these; see `difference`.

    Args:
        parts: weights and arms. If the weights sum to 0, and metrics have a range, two examples are added.
    """
    weights = [weight for weight, _ in parts]
    seeds = common_seeds([arm for _, arm in parts])
    arms = [arm.of_seeds(seeds) if seeds else arm for _, arm in parts]
    paired = [(1.0, _combined(weights, arms))] if seeds else list(zip(weights, arms, strict=True))
    examples = arms[0].examples
    replicates = sum(weight * arm.resampled.mean(0) for weight, arm in paired)
    unbiased = examples / max(1, examples - 1)
    variance = unbiased * float(np.var(replicates, ddof=1))
    value = float(sum(weight * arm.scores.mean() for weight, arm in paired))
    center, most = value, math.inf
    if abs(sum(weights)) < 1e-9:
        if arms[0].lowest is not None:
            most = sum(map(abs, weights)) / 2 * (100 - arms[0].lowest)
        center, variance = _with_two_examples(value, variance, weights, arms)
    elif seeds:
        variance = max(variance, unbiased * float(paired[0][1].resampled.var(1, ddof=1).mean()) / len(seeds))
    parts_of_seeds = tuple(_seeds_part(weight, arm) for weight, arm in paired if len(arm.seeds) > 1)
    degrees = max(1, examples - 1) if arms[0].lowest is None else None
    return Estimate(value, center, variance, parts_of_seeds, most, degrees)


def common_seeds(arms: Sequence[Resampled]) -> tuple[int, ...]:
    """Return the seeds on which arms are compared: those of all; () if there are none, or one of several of each."""
    common = [seed for seed in arms[0].seeds if all(seed in arm.seeds for arm in arms)]
    return tuple(common) if len(common) > 1 or any(len(arm.seeds) == 1 for arm in arms) else ()


def _seeds_part(weight: float, arm: Resampled) -> SeedsPart:
    number = len(arm.seeds)
    interaction = (arm.resampled.var(1, ddof=1).mean() - arm.resampled.mean(0).var(ddof=1)) / (number - 1)
    return SeedsPart(
        weight**2 * float(arm.scores.var(ddof=1)) / number, weight**2 * max(0.0, float(interaction)), number - 1
    )


def _combined(weights: Sequence[float], arms: Sequence[Resampled]) -> Resampled:
    """Return the weighted sum of arms that have the same seeds, seed by seed."""
    scores = np.tensordot(weights, np.array([arm.scores for arm in arms]), 1)
    drawn = np.tensordot(weights, np.array([arm.resampled for arm in arms]), 1)
    return Resampled(arms[0].seeds, scores, drawn, arms[0].examples, arms[0].lowest)


def _with_two_examples(
    value: float, variance: float, weights: Sequence[float], arms: Sequence[Resampled]
) -> tuple[float, float]:
    """Return the center and the variance of a difference with two more examples, if metrics have a range."""
    low = arms[0].lowest
    if low is None:
        return value, variance
    numbers = [
        effective_number(float(arm.scores.mean()), float(arm.resampled.var(1).mean()), arm.examples, low)
        for arm in arms
    ]
    width = 100 - low
    sides = [
        sum(len(arm.seeds) for weight, arm in zip(weights, arms, strict=True) if sign * weight > 0) for sign in (1, -1)
    ]
    center, variance = add_two_examples(value / width, variance / width**2, min(numbers), runs=min(sides))
    return width * center, width**2 * variance
