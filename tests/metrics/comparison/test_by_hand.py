"""Differences, corrections and races against the formulas of docs/comparing.md, written once more in another way."""

import math
import statistics
from itertools import combinations

import numpy as np
import pytest
from scipy import optimize, stats

from tests.metrics.comparison.conftest import resample
from unmask.metrics.comparison.decision import arms_to_stop, compare, family_level, largest_differences
from unmask.metrics.comparison.estimates import difference
from unmask.metrics.comparison.multibootstrap import Resampled, average_tasks


def answers(rng, shares, *, seeds, examples):
    """Whether arms are right, in percent, (seeds, examples) by name; an arm's share varies with the seed."""
    hard = rng.random(examples)
    arms = {}
    for number, share in enumerate(shares):
        rows = []
        for shift in rng.normal(0, 0.03, seeds):
            ease = hard + rng.normal(0, 0.3, examples)
            rows.append(100.0 * (ease < np.quantile(ease, min(1.0, max(0.0, share + shift)))))
        arms[f"arm-{number}"] = np.array(rows)
    return arms


def by_hand(first, second, *, level=0.05, subtracted=0.6, pooled=None):
    """Value, center and half width of a difference; `pooled` is the variance and the degrees of the average pair."""
    seeds, number = len(first.seeds), first.examples
    apart = [float(a - b) for a, b in zip(first.scores, second.scores, strict=True)]
    rows = [
        [float(a - b) for a, b in zip(*pair, strict=True)]
        for pair in zip(first.resampled, second.resampled, strict=True)
    ]
    of_means = statistics.variance([statistics.fmean(column) for column in zip(*rows, strict=True)])
    value, examples = statistics.fmean(apart), of_means * number / (number - 1)
    center = value
    if (
        first.lowest is not None
    ):  # Bonett and Price: two more examples, in each of which one run of another arm is right
        width, effective = 100 - first.lowest, []
        for arm in (first, second):
            share = (statistics.fmean(arm.scores.tolist()) - arm.lowest) / width
            spread = statistics.fmean(statistics.pvariance(row) for row in arm.resampled.tolist()) / width**2
            effective.append(share * (1 - share) / spread if share * (1 - share) > 0 and spread > 1e-20 else number)
        n = min(effective)
        d, variance = value / width, examples / width**2
        center = d * n / (n + 2)
        mean_square = (n * (n * variance + d * d) + 2 / seeds**2) / (n + 2)
        examples, center = width**2 * (mean_square - center**2) / (n + 2), width * center
    of_examples = stats.norm if first.lowest is not None else stats.t(number - 1)
    square = of_examples.isf(level / 2) ** 2 * examples
    if seeds > 1:
        variance, degrees = statistics.variance(apart) / seeds, seeds - 1
        alone = statistics.fmean(statistics.variance(row) for row in rows)
        interaction = max(0.0, (alone - of_means) / (seeds - 1))
        if pooled is not None:
            variance = (degrees * variance + pooled[1] * pooled[0]) / (degrees + pooled[1])
            degrees += pooled[1]
        square += stats.t.isf(level / 2, degrees) ** 2 * max(0.0, variance - subtracted * interaction)
    return value, center, math.sqrt(square)


def pooled_by_hand(arms):
    """Mean variance of the difference of a pair of arms, divided by the seeds, and the degrees that it counts."""
    seeds = len(arms[0].seeds)
    if len(arms) < 3 or seeds < 3:
        return None
    pairs = [statistics.variance((a.scores - b.scores).tolist()) / seeds for a, b in combinations(arms, 2)]
    return statistics.fmean(pairs), min(4, len(arms) - 1)


@pytest.mark.parametrize("lowest", [None, 0.0])
@pytest.mark.parametrize("seed", range(8))
def test_differences(seed, lowest):
    rng = np.random.default_rng(seed)
    shares = [rng.uniform(0.3, 1.05), rng.uniform(0.3, 1.05)]
    size = {"seeds": int(rng.integers(1, 6)), "examples": int(rng.integers(20, 400))}
    first, second = resample(answers(rng, shares, **size), resamples=200, lowest=lowest).values()
    value, center, half = by_hand(first, second)
    estimate = difference(first, second)
    assert estimate.value == pytest.approx(value, abs=1e-9) and estimate.center == pytest.approx(center, abs=1e-9)
    ends = np.array([min(value, center - half), max(value, center + half)])
    assert estimate.interval == pytest.approx(ends if lowest is None else ends.clip(-100, 100), abs=1e-3)


@pytest.mark.parametrize("seeds", [1, 2, 3, 5])
def test_equal_arms_differ_by_0_and_none_is_recommended(seeds):
    rng = np.random.default_rng(seeds)
    (values,) = answers(rng, [0.8], seeds=seeds, examples=150).values()
    arms = resample(dict.fromkeys("abc", values), resamples=200, lowest=0.0)
    compared = compare(arms)
    assert compared.recommended is None and len(compared.contenders) == 3
    for row in compared.standings[1:]:
        low, high = row.difference_interval
        assert row.difference == 0 and low == pytest.approx(-high) and 0 < high < 5
    assert not arms_to_stop(arms, looks=2, starters=3)


@pytest.mark.parametrize("seed", range(5))
def test_the_level_of_a_pair_holds_for_all_pairs(seed):
    """That of an independent simulation with the covariances of the arms, which have different variances."""
    rng = np.random.default_rng(seed)
    count, seeds = int(rng.integers(3, 7)), int(rng.integers(3, 6))
    values = {
        f"arm-{n}": rng.normal(0, rng.uniform(0.2, 3), (seeds, 1)) + rng.normal(0, 20, (seeds, 200))
        for n in range(count)
    }
    arms = list(resample(values, resamples=2000).values())
    scores = np.array([arm.scores for arm in arms])
    residuals = scores - scores.mean(0)
    seeds_part = residuals.var(1, ddof=1) / seeds / (1 - 1 / count)
    covariance = np.cov([arm.resampled.mean(0) for arm in arms]) + np.diag(seeds_part)
    draws = np.random.default_rng(99).multivariate_normal(np.zeros(count), covariance, size=20_000)
    largest = np.zeros(len(draws))
    for i, j in combinations(range(count), 2):
        error = math.sqrt(covariance[i, i] + covariance[j, j] - 2 * covariance[i, j])
        largest = np.maximum(largest, np.abs(draws[:, i] - draws[:, j]) / error)
    expected = 2 * stats.norm.sf(np.quantile(largest, 0.95))
    assert family_level(largest_differences(arms, 0)) == pytest.approx(expected, rel=0.25)
    assert 0.05 / math.comb(count, 2) * 0.75 < expected <= 0.05, "no stricter than Bonferroni's"


@pytest.mark.parametrize("seed", range(12))
def test_races(seed):
    """An arm stops if it is below the leader by a one-sided test at 5 % / looks / rivals."""
    rng = np.random.default_rng(seed)
    count, seeds = int(rng.integers(2, 6)), int(rng.integers(2, 5))
    shares = rng.uniform(0.55, 0.85, count)
    arms = resample(answers(rng, shares, seeds=seeds, examples=600), resamples=300, lowest=0.0)
    looks, starters = int(rng.integers(1, 4)), count + int(rng.integers(3))
    leader = max(arms.values(), key=lambda arm: arm.scores.mean())
    pooled = pooled_by_hand(list(arms.values()))
    expected, near = set(), set()
    for name, arm in arms.items():
        center = by_hand(arm, leader)[1]

        def beyond(log_level, arm=arm, center=center):
            return by_hand(arm, leader, level=math.exp(log_level), subtracted=0.0, pooled=pooled)[2] - abs(center)

        if arm is leader or center >= 0:
            continue
        limit = math.log(0.05 / looks / (starters - 1) * 2)
        if beyond(limit) <= 0:
            expected.add(name)
        if abs(beyond(limit)) < 0.01:
            near.add(name)
        if beyond(math.log(1e-5)) > 0 > beyond(math.log(0.999)):  # the p-value is where the interval reaches 0
            p = math.exp(optimize.brentq(beyond, math.log(1e-5), math.log(0.999)))
            assert difference(arm, leader).p == pytest.approx(p, rel=0.01) or pooled is not None
    stopped = arms_to_stop(arms, looks=looks, starters=starters)
    assert stopped.keys() - near == expected - near and all(arms[each] is leader for each in stopped.values())


def test_the_mean_of_a_small_and_a_large_test_set():
    """Its variance is a quarter of the sum of both, and its intervals cover."""
    rng, covered = np.random.default_rng(5), 0
    for number in range(40):
        tasks = []
        effects = {name: rng.normal(0, 1.0, (2, 3, 1)) for name in ("a", "b")}
        for task, (examples, spread) in enumerate(((60, 10.0), (1000, 30.0))):
            common = rng.normal(0, spread, examples)
            values = {n: 70 + common + effects[n][task] + rng.normal(0, spread, (3, examples)) for n in effects}
            tasks.append(resample(values, resamples=250, seed=number))
        arms = average_tasks(tasks)
        low, high = difference(arms["a"], arms["b"]).interval
        covered += low <= 0 <= high
        parts = [task["a"].resampled.mean(0).var() for task in tasks]
        assert arms["a"].resampled.mean(0).var() == pytest.approx(sum(parts) / 4, rel=0.45)
        assert arms["a"].scores == pytest.approx((tasks[0]["a"].scores + tasks[1]["a"].scores) / 2)
        assert isinstance(arms["a"], Resampled) and arms["a"].examples == 60
    assert covered >= 36
