"""Comparison of two models on the same examples: the difference, its interval and its p-value."""

import numpy as np
import pytest
from scipy import stats

from unmask.metrics import classification, regression
from unmask.metrics.intervals import RESAMPLES, differences, intervals, measure_all

SIZE = 400


def models(first, second, *, seed=0, together=0.8):
    """Return measures of two models with these accuracies, correct mostly on the same examples, and where they are."""
    rng = np.random.default_rng(seed)
    gold, luck = rng.integers(0, 2, SIZE), rng.random(SIZE)
    correct = []
    for share in (first, second):
        own = np.where(rng.random(SIZE) < together, luck, rng.random(SIZE))
        correct.append(own < share)
    predicted = [np.where(it, gold, 1 - gold) for it in correct]
    return [classification.measure(gold, it, 2) for it in predicted], correct


def test_a_model_does_not_differ_from_itself():
    (first, _), _ = models(0.8, 0.8)
    for found in differences(first, first, SIZE).values():
        assert found == {"difference": 0, "interval": [0, 0], "p": 1}


def test_differences_are_first_minus_second_and_change_their_sign():
    (first, second), _ = models(0.85, 0.75)
    found, back = differences(first, second, SIZE), differences(second, first, SIZE)
    first_all, second_all = measure_all(first, SIZE), measure_all(second, SIZE)
    assert found.keys() == first_all.keys()
    for name, one in found.items():
        assert one["difference"] == first_all[name] - second_all[name] == -back[name]["difference"]
        assert one["interval"] == pytest.approx([-bound for bound in reversed(back[name]["interval"])])
        assert one["p"] == back[name]["p"]
        assert one["interval"][0] <= one["difference"] <= one["interval"][1]


def test_p_is_about_that_of_the_exact_test():
    """Compares with McNemar's test, for small and for large differences."""
    for seed, (first, second) in enumerate([(0.8, 0.8), (0.82, 0.78), (0.83, 0.77), (0.9, 0.7)]):
        measures, (one, other) = models(first, second, seed=seed)
        only = [int((one & ~other).sum()), int((other & ~one).sum())]
        expected = stats.binomtest(only[0], sum(only)).pvalue
        p = differences(*measures, SIZE)["accuracy"]["p"]
        assert p == pytest.approx(expected, abs=0.06)
        assert 1 / RESAMPLES <= p <= 1


def test_the_same_examples_are_drawn_for_both():
    """With independent resamples the interval would be wider: the models err on the same examples."""
    measures, _ = models(0.82, 0.78, together=1.0)
    low, high = differences(*measures, SIZE)["accuracy"]["interval"]
    separate = [intervals(measure, SIZE)["accuracy"] for measure in measures]
    independent = np.hypot(*(bound[1] - bound[0] for bound in separate))
    assert high - low < 0.6 * independent
    assert low > 0, "a difference of 4 points is significant"


def test_differences_are_reproducible_for_any_metric():
    rng = np.random.default_rng(0)
    gold = rng.normal(size=SIZE)
    first, second = (regression.measure(gold, gold + noise * rng.normal(size=SIZE)) for noise in (0.5, 1.0))
    found = differences(first, second, SIZE)
    assert found == differences(first, second, SIZE)
    assert found != differences(first, second, SIZE, seed=1)
    assert found.keys() == {"pearson", "spearman"}
    assert all(one["p"] == 1 / RESAMPLES and one["interval"][0] > 0 for one in found.values())
