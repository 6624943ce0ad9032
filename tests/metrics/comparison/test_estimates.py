"""Intervals of means and differences: parts, closed forms, and coverage on planted scores."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from tests.metrics.comparison.conftest import resample
from unmask.metrics import classification, intervals
from unmask.metrics.comparison.estimates import (
    INTERACTION,
    Estimate,
    SeedsPart,
    common_seeds,
    contrast,
    difference,
    mean_score,
    pooled_seeds,
)


def mean_squares(values):
    """Return the mean squares of seeds, examples and residuals of (seeds, examples) values, by analysis of variance."""
    seeds, examples = values.shape
    of_seeds, of_examples = values.mean(1, keepdims=True), values.mean(0, keepdims=True)
    residuals = values - of_seeds - of_examples + values.mean()
    return (
        examples * of_seeds.var(ddof=1),
        seeds * of_examples.var(ddof=1),
        (residuals**2).sum() / ((seeds - 1) * (examples - 1)),
    )


def test_parts_are_those_of_an_analysis_of_variance(planted):
    for seed in range(15):
        rng = np.random.default_rng(seed)
        shape = {"seeds": int(rng.integers(2, 8)), "examples": int(rng.integers(50, 200))}
        arms = planted(rng, [70], seed_effect=rng.random() * 5, **shape)
        estimate = contrast([(1.0, resample(arms, resamples=3000)["arm-0"])])
        seeds, examples, residuals = mean_squares(arms["arm-0"])
        number = shape["seeds"] * shape["examples"]
        (part,) = estimate.seeds
        assert part.degrees == shape["seeds"] - 1
        assert part.variance == pytest.approx(seeds / number)
        assert estimate.examples == pytest.approx(examples / number, rel=0.15)
        assert part.interaction == pytest.approx(residuals / number, rel=0.2)


@pytest.mark.seeds(20)
def test_guesses_that_err_on_opposite_examples_vary_as_guesses_do(seed):
    """Seeds that always say the same of two labels: where some say one and some the other, their mean hardly varies."""
    rng = np.random.default_rng(seed)
    seeds, number = int(rng.integers(2, 6)), 2 * int(rng.integers(20, 100))
    says = rng.permutation(np.arange(seeds) % 2)
    right = 100.0 * (says[:, None] == np.arange(number) % 2)
    arm = resample({"guess": right.astype(np.float32)}, lowest=0.0)["guess"]
    value, low, high = mean_score(arm)
    error = 50 / np.sqrt(seeds * number)  # of as many independent guesses
    assert value == 50 and (high - low) / 2 > 0.9 * stats.norm.isf(0.025) * error
    assert contrast([(1.0, arm)]).examples == pytest.approx(error**2, rel=0.1)


def test_width_is_that_of_howe():
    estimate = Estimate(3.0, 3.0, 0.5, (SeedsPart(2.0, 0.5, 4), SeedsPart(0.1, 0.4, 2)))
    squares = stats.norm.isf(0.025) ** 2 * 0.5 + stats.t.isf(0.025, 4) ** 2 * (2 - INTERACTION * 0.5)
    assert estimate.half_width() == pytest.approx(np.sqrt(squares), rel=1e-5)
    assert estimate.interval == pytest.approx((3 - np.sqrt(squares), 3 + np.sqrt(squares)), rel=1e-4)
    cautious = stats.norm.isf(0.005) ** 2 * 0.5 + stats.t.isf(0.005, 4) ** 2 * 2 + stats.t.isf(0.005, 2) ** 2 * 0.1
    assert estimate.interval_at(0.01)[0] == pytest.approx(3 - np.sqrt(cautious), rel=1e-4)


def test_p_is_the_level_at_which_the_interval_reaches_0(planted):
    for seed in range(15):
        rng = np.random.default_rng(seed)
        first, second = resample(planted(rng, [70, 70 - 6 * rng.random()]), resamples=300).values()
        apart = difference(first, second)
        low, high = apart.interval_at(apart.p)
        assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-3 * (high - low))
        assert (apart.interval_at(0.05)[0] > 0 or apart.interval_at(0.05)[1] < 0) == (apart.p < 0.05)
    assert difference(first, first).p == 1
    assert Estimate(9.0, 9.0, 0.01).p == pytest.approx(1e-6)


def test_intervals_of_one_seed_are_those_of_evaluate():
    """Of an accuracy by itself, and of the difference of two."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        gold = rng.integers(0, 2, 300)
        runs = [np.where(rng.random(300) < share, gold, 1 - gold) for share in (0.97, 0.9)]
        right = {str(number): 100.0 * (run == gold)[None] for number, run in enumerate(runs)}
        arms = resample(right, seed=seed, lowest=0.0)
        measures = [classification.measure(gold, run, 2) for run in runs]
        expected = intervals.intervals(measures[0], 300)["accuracy"]
        assert mean_score(arms["0"])[1:] == pytest.approx(expected, abs=0.15)
        compared = intervals.differences(*measures, 300)["accuracy"]
        apart = difference(arms["0"], arms["1"])
        assert apart.value == pytest.approx(compared["difference"])
        assert apart.interval == pytest.approx(compared["interval"], abs=0.2)


def test_an_interval_is_no_point_where_all_is_right_or_arms_agree():
    perfect = resample({"a": np.full((3, 50), 100.0)}, resamples=50, lowest=0.0)["a"]
    assert mean_score(perfect) == pytest.approx(
        (100, 100 * stats.binomtest(50, 50).proportion_ci(method="wilson").low, 100)
    )
    low, high = difference(perfect, perfect).interval
    assert -3 < low < 0 < high < 3


@pytest.mark.parametrize("lowest", [0.0, -100.0, None])
def test_differences_are_none_that_there_cannot_be(planted, lowest):
    """Two seeds show so little that intervals would be a thousand points wide."""
    for seed in range(8):
        values = planted(np.random.default_rng(seed), [60, 60, 70], seeds=2, seed_effect=20.0)
        arms = list(resample({name: row.clip(lowest, 100) for name, row in values.items()}, lowest=lowest).values())
        apart = difference(arms[0], arms[1])
        low, high = apart.interval_at(0.001)
        half = apart.half_width(0.001, subtracted=0.0)
        assert low <= apart.value <= high
        if lowest is None:
            assert (low, high) == (min(apart.value, apart.center - half), max(apart.value, apart.center + half))
            continue
        assert -(100 - lowest) <= low and high <= 100 - lowest
        assert (low > 0 or high < 0) == (half < abs(apart.center)), "what can be told is as before"
        effect = contrast([(0.5, arms[0]), (0.5, arms[1]), (-1.0, arms[2])])
        assert effect.most == 100 - lowest


def test_arms_with_the_same_seeds_are_paired_and_others_are_not(planted):
    """The effect of a seed that arms share cancels."""
    arms = resample(planted(np.random.default_rng(0), [70, 70], seeds=4), resamples=300)
    first, second = arms.values()
    assert common_seeds([first, second.of_seeds([2, 1, 0])]) == (0, 1, 2)
    paired = difference(first, second.of_seeds([3, 1]))
    assert paired.value == pytest.approx((first.scores - second.scores)[[1, 3]].mean())
    assert [part.degrees for part in paired.seeds] == [1]
    other = resample(planted(np.random.default_rng(1), [70], seeds=9), resamples=300)["arm-0"].of_seeds([8, 7, 6])
    apart = difference(first, other)
    assert apart.value == pytest.approx(first.scores.mean() - other.scores.mean())
    assert [part.degrees for part in apart.seeds] == [3, 2]
    variances = [first.scores.var(ddof=1) / 4, other.scores.var(ddof=1) / 3]
    assert [part.variance for part in apart.seeds] == pytest.approx(variances)
    assert difference(first, second.of_seeds([2])).seeds == (), "one seed of both: examples only"


@pytest.mark.parametrize(("seeds", "seed_effect"), [(3, 0.0), (3, 2.0), (5, 1.0), (10, 1.0)])
def test_intervals_cover(planted, seeds, seed_effect):
    """In 600 draws; benchmarks/coverage.py has more kinds and draws of them."""
    rng, covered = np.random.default_rng(3), []
    for start in range(3):
        arms = {}
        for draw in range(200):
            drawn = planted(rng, [70, 68], seeds=seeds, seed_effect=seed_effect, examples=200, example_effect=0.0)
            common = rng.normal(0, 20, 200)
            arms |= {f"{draw}-{name}": values + common for name, values in drawn.items()}
        resampled = list(resample(arms, resamples=300, seed=start).values())
        for first, second in zip(resampled[::2], resampled[1::2], strict=True):
            low, high = difference(first, second).interval
            _, lowest, highest = mean_score(first)
            covered.append((lowest <= 70 <= highest, low <= 2 <= high))
    assert (np.mean(covered, 0) > 0.91).all() and (np.mean(covered, 0) < 0.985).all(), np.mean(covered, 0)


@pytest.mark.parametrize("documents", [2, 3, 10])
def test_intervals_cover_the_bits_of_few_documents(documents):
    """In 500 draws; with a normal quantile, 69 to 90 % of the intervals of two documents or three would."""
    rng, covered = np.random.default_rng(documents), []
    for _ in range(500):
        common = rng.lognormal(0.8, 0.25, documents)
        arms = [common + rng.normal(0, 0.08, documents) + rng.normal(0, 0.03, (3, documents)) for _ in range(2)]
        first, second = resample({"0": -arms[0], "1": -arms[1]}, resamples=100).values()
        _, lowest, highest = mean_score(first)
        low, high = difference(first, second).interval
        covered.append((lowest <= -np.exp(0.8 + 0.25**2 / 2) <= highest, low <= 0 <= high))
    assert (np.mean(covered, 0) > 0.91).all() and (np.mean(covered, 0) < 0.99).all(), np.mean(covered, 0)


def test_pooled_variance_is_the_mean_of_all_pairs_and_moderates_each(planted):
    for seed in range(50):
        rng = np.random.default_rng(seed)
        arms = resample(planted(rng, [70] * int(rng.integers(3, 8)), seeds=4, examples=30), resamples=20)
        several = list(arms.values())
        pairs = [difference(one, other).seeds[0] for one, other in combinations(several, 2)]
        pooled = pooled_seeds(several)
        assert pooled.variance == pytest.approx(np.mean([part.variance for part in pairs]))
        assert pooled.degrees == min(4, len(several) - 1)
        (part,) = difference(several[0], several[1], pooled=pooled).seeds
        assert part.degrees == 3 + pooled.degrees
        expected = (3 * pairs[0].variance + pooled.degrees * pooled.variance) / part.degrees
        assert part.variance == pytest.approx(expected)
    assert pooled_seeds(several[:2]) is None
    assert pooled_seeds([arm.of_seeds([0, 1]) for arm in several]) is None
    assert pooled_seeds([several[0].of_seeds([0, 1, 2]), *several[1:]]) is None
