"""Resampled runs beside the procedure of the paper; averages over tasks; interquartile means beside SciPy's."""

import numpy as np
import pytest
from scipy import stats

from tests.metrics.comparison.conftest import resample
from unmask.metrics.comparison.multibootstrap import (
    average_tasks,
    interquartile_interval,
    interquartile_mean,
    resample_runs,
)
from unmask.support.errors import UserError


def paper(scores, other, *, paired, draws, rng):
    """Return differences by the procedure of the paper: seeds and examples are drawn, runs scored one by one."""
    differences = []
    for _ in range(draws):
        examples = rng.integers(scores.shape[1], size=scores.shape[1])
        seeds = rng.integers(len(scores), size=len(scores))
        others = seeds if paired else rng.integers(len(other), size=len(other))
        differences.append(
            np.mean([scores[seed, examples].mean() for seed in seeds])
            - np.mean([other[seed, examples].mean() for seed in others])
        )
    return np.array(differences)


@pytest.mark.parametrize("paired", [True, False])
def test_resampled_runs_are_those_of_the_paper(planted, paired):
    arms = planted(np.random.default_rng(1), [70, 68], examples=60, seeds=4, seed_effect=5.0)
    first, second = resample(arms, resamples=4000).values()
    ours = (resample_runs(first) - resample_runs(second, seed=0 if paired else 1)).mean(1)
    reference = paper(*arms.values(), paired=paired, draws=4000, rng=np.random.default_rng(2))
    assert ours.std() == pytest.approx(reference.std(), rel=0.06)
    assert np.percentile(ours, [2.5, 50, 97.5]) == pytest.approx(
        np.percentile(reference, [2.5, 50, 97.5]), abs=0.2 * reference.std()
    )


def test_averages_over_tasks(planted):
    tasks = [
        resample(planted(np.random.default_rng(task), [70, 60], examples=100), lowest=low)
        for task, low in enumerate((0.0, -100.0))
    ]
    averages = average_tasks(tasks)
    for name, arm in averages.items():
        assert arm.scores == pytest.approx((tasks[0][name].scores + tasks[1][name].scores) / 2)
        variances = [task[name].resampled.mean(0).var() for task in tasks]
        assert arm.resampled.mean(0).var() == pytest.approx(sum(variances) / 4, rel=0.15), "examples are independent"
        assert (arm.lowest, arm.examples) == (-50.0, 100)
    with pytest.raises(UserError, match="arm-1: not all tasks have the same seeds"):
        average_tasks([tasks[0], {**tasks[1], "arm-1": tasks[1]["arm-1"].of_seeds([0, 1])}])
    with pytest.raises(UserError, match="arm-1: not all tasks"):
        average_tasks([tasks[0], {"arm-0": tasks[1]["arm-0"]}])


def test_tasks_with_the_same_test_examples_are_not_independent(planted):
    (one, other) = (resample(planted(np.random.default_rng(task), [70, 60], examples=100)) for task in range(2))
    for name, arm in average_tasks([one, one, one], ["test"] * 3).items():
        assert arm.resampled == pytest.approx(one[name].resampled), (
            "no interval is narrower than that of the task itself"
        )
    for name, arm in average_tasks([one, other, one], ["test", "other", "test"]).items():
        expected = (2 * one[name].resampled + np.roll(other[name].resampled, 1, axis=1)) / 3
        assert arm.resampled == pytest.approx(expected)


def test_interquartile_means_are_trimmed_means_of_scipy():
    for seed in range(60):
        scores = np.random.default_rng(seed).normal(size=(3, int(np.random.default_rng(seed).integers(8, 30))))
        assert interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores, 0.25, axis=-1))


def test_interquartile_intervals_need_8_seeds(planted):
    arm = resample(planted(np.random.default_rng(0), [70], seeds=8))["arm-0"]
    value, low, high = interquartile_interval(arm)
    assert low < value < high and value == pytest.approx(stats.trim_mean(arm.scores, 0.25))
    with pytest.raises(UserError, match="7 seeds have no interquartile mean; train with 8 or more"):
        interquartile_interval(arm.of_seeds(range(7)))
