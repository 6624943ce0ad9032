"""Which arm is best, and whether it can be told: errors on planted arms, beside the studentized range of SciPy."""

import random

import numpy as np
import pytest
from scipy import stats

from tests.metrics.comparison.conftest import resample
from unmask.metrics.comparison.decision import compare, family_level, largest_differences


def test_same_arms_are_too_close_to_call(planted):
    """Two, and five, in at least 95 % of 40 draws."""
    for number in (2, 5):
        calls = 0
        for seed in range(40):
            arms = planted(np.random.default_rng(seed), [70] * number, seeds=3 + seed % 3, examples=100)
            calls += compare(resample(arms, resamples=300)).recommended is not None
        assert calls <= 2


def test_a_worse_arm_is_not_recommended(planted):
    """Arms that are 1 apart, at most; the best is recommended if they are 8 apart."""
    wrong = 0
    for seed in range(40):
        arms = resample(planted(np.random.default_rng(seed), [69, 70, 69.5], examples=100), resamples=300)
        wrong += compare(arms).recommended in ("arm-0", "arm-2")
    assert wrong <= 2
    for seed in range(15):
        far = resample(planted(np.random.default_rng(seed), [62, 70, 61], examples=200), resamples=300)
        assert compare(far).recommended == "arm-1"


def test_intervals_p_values_and_contenders_agree(planted):
    undecided = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        means = 70 - 20 * rng.random(4)
        arms = resample(planted(rng, means, examples=100), resamples=400)
        comparison = compare(arms)
        best = comparison.standings[0]
        assert (best.difference, best.difference_interval, best.p) == (0, (0, 0), 1)
        assert best.name in comparison.contenders
        for row in comparison.standings[1:]:
            assert row.score <= best.score and row.interval[0] < row.score < row.interval[1]
            assert row.difference == pytest.approx(row.score - best.score)
            assert row.difference_interval[0] < row.difference < row.difference_interval[1]
            assert (row.name in comparison.contenders) == (row.p > 0.05)
        undecided += comparison.recommended is None
    assert 2 < undecided < 28


def test_the_order_of_the_arms_changes_nothing(planted):
    """The table of a report and its recommendation name them in other orders."""
    for seed in range(10):
        arms = resample(planted(np.random.default_rng(seed), [70, 71, 72, 60], examples=100), resamples=400)
        names = list(arms)
        random.Random(seed).shuffle(names)
        assert compare({name: arms[name] for name in names}) == compare(arms)


def test_the_level_of_a_pair_is_that_of_the_studentized_range(planted):
    """Of Tukey's test, for arms with as much variance that are independent given the examples."""
    for number in (2, 3, 5, 10):
        arms = planted(np.random.default_rng(0), [70] * number, seeds=20, seed_effect=2.0, examples=300)
        level = family_level(largest_differences(list(resample(arms, resamples=4000).values()), 0))
        critical = stats.studentized_range.isf(0.05, number, np.inf) / np.sqrt(2)
        assert stats.norm.isf(level / 2) == pytest.approx(critical, abs=0.12)
        assert 0.05 / (number * (number - 1) / 2) * 0.7 < level <= 0.05


def test_notes(planted):
    arms = resample(planted(np.random.default_rng(0), [70, 69, 68], seeds=8), resamples=300)
    assert all(row.interquartile is not None for row in compare(arms).standings)
    few = {name: arms["arm-2"].of_seeds([4]) for name in "cd"}
    fewer = compare({"a": arms["arm-0"], "b": arms["arm-1"].of_seeds([1, 2, 3]), **few})
    assert fewer.notes == (
        "c, d: 1 seed, so intervals are over examples only; other seeds may differ by more",
        "b: 3 seeds, others up to 8; compared on the 3 seeds of both",
        "c, d: 1 seed, others up to 8; compared on the 1 seed of both",
    )
    assert [row.interquartile is None for row in fewer.standings] == [row.name != "a" for row in fewer.standings]
    assert compare({"a": arms["arm-0"]}).recommended == "a"
