"""Scores on resamples, beside SciPy's bootstrap and the procedure of the paper; averages over tasks."""

import numpy as np
import pytest
from scipy import stats

from unmask.metrics import classification, intervals
from unmask.metrics.comparison import multibootstrap
from unmask.metrics.comparison.counts import f1, f1_counts, mean
from unmask.metrics.comparison.multibootstrap import (
    Resampled,
    Scores,
    average_tasks,
    interquartile_interval,
    interquartile_mean,
    resample,
    resample_measures,
    resample_runs,
)
from unmask.support.errors import UserError


def test_spread_of_resamples_is_that_of_scipy():
    """Of means, of F1, and of the difference of two arms, which are paired over examples."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        gold = rng.integers(0, 2, 200)
        first, second = (np.where(rng.random((1, 200)) < 0.8, gold, 1 - gold) for _ in range(2))
        arms = {name: Scores([0], f1_counts(gold, run), f1) for name, run in (("a", first), ("b", second))}
        drawn = resample(arms, resamples=4000, seed=seed)
        rows = np.concatenate([arms["a"].counts[0], arms["b"].counts[0]], 1)

        def apart(index, rows=rows):
            return f1(rows[index.astype(int), :3].mean(0)) - f1(rows[index.astype(int), 3:].mean(0))

        boot = stats.bootstrap((np.arange(200),), apart, vectorized=False, n_resamples=1000, method="basic", rng=seed)
        ours = (drawn["a"].resampled - drawn["b"].resampled)[0]
        assert ours.std() == pytest.approx(boot.standard_error, rel=0.1)
        assert ours.mean() == pytest.approx(apart(np.arange(200)), abs=4 * boot.standard_error / np.sqrt(1000))


def test_means_over_examples_and_normal_results(planted):
    arms = planted(np.random.default_rng(0), [70, 60], examples=500)
    for name, arm in resample(arms, resamples=4000).items():
        values = arms[name].counts[..., 0]
        assert arm.scores == pytest.approx(values.mean(1))
        assert arm.resampled.std(1) == pytest.approx(values.std(1) / np.sqrt(500), rel=0.05)


def test_blocks_of_weights_do_not_change_the_result(planted, monkeypatch):
    arms = planted(np.random.default_rng(0), [70], examples=100)
    whole = resample(arms, resamples=300)["arm-0"].resampled
    monkeypatch.setattr(multibootstrap, "BLOCK", 7 * 100)
    assert resample(arms, resamples=300)["arm-0"].resampled == pytest.approx(whole)


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
    values = [arm.counts[..., 0] for arm in arms.values()]
    reference = paper(*values, paired=paired, draws=4000, rng=np.random.default_rng(2))
    assert ours.std() == pytest.approx(reference.std(), rel=0.06)
    assert np.percentile(ours, [2.5, 50, 97.5]) == pytest.approx(
        np.percentile(reference, [2.5, 50, 97.5]), abs=0.2 * reference.std()
    )


def test_measures_of_tasks_have_the_resamples_of_evaluate(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 200)
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 3, 90)
    runs = [np.where(rng.random(90) < 0.7, gold, 0) for _ in range(4)]
    measures = [classification.measure(gold, run, 3) for run in runs]
    arms = resample_measures({"a": dict(enumerate(measures[:2])), "b": {5: measures[2], 6: measures[3]}}, "f1", 90)
    assert (arms["b"].seeds, arms["b"].lowest, arms["b"].examples) == ((5, 6), 0.0, 90)
    for number, measure in enumerate(measures):
        arm = arms["ab"[number // 2]]
        assert arm.scores[number % 2] == measure(np.arange(90))["f1"]
        assert (arm.resampled[number % 2] == intervals.resampled([measure], 90, 0, None)[0]["f1"]).all()
    grouped = resample_measures({"a": {0: measures[0]}}, "matthews_correlation", 90, groups=[i // 3 for i in range(90)])
    assert (grouped["a"].examples, grouped["a"].lowest) == (30, -100.0)


def test_averages_over_tasks(planted):
    tasks = [
        resample(planted(np.random.default_rng(task), [70, 60], examples=100, lowest=low))
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


def test_what_is_refused(planted):
    arms = planted(np.random.default_rng(0), [70], examples=20)
    values = np.zeros((2, 20, 1))
    with pytest.raises(UserError, match="numbers of examples differ"):
        resample({**arms, "other": Scores([0, 1], values[:, :19])})
    with pytest.raises(UserError, match="other: 2 scores of 1 seeds; give each seed once"):
        resample({**arms, "other": Scores([1, 1], values)})
    with pytest.raises(UserError, match="other: a score is not finite"):
        resample({**arms, "other": Scores([0, 1], np.where(np.arange(20)[:, None] == 3, np.nan, values), mean)})
    with pytest.raises(ValueError, match="not in tuple"):
        Resampled((0,), np.zeros(1), np.zeros((1, 5)), 5).of_seeds([3])
