"""Two models on the same examples: the difference, its interval, and how likely chance is."""

import numpy as np
import pytest
from scipy import stats

from unmask.metrics import classification, regression
from unmask.metrics.intervals import RESAMPLES, differences, intervals, whole

SIZE = 400


def models(first, second, *, seed=0, together=0.8):
    """Measures of two models that are right with these probabilities, mostly on the same examples; what is right."""
    rng = np.random.default_rng(seed)
    gold, luck = rng.integers(0, 2, SIZE), rng.random(SIZE)
    right = []
    for share in (first, second):
        own = np.where(rng.random(SIZE) < together, luck, rng.random(SIZE))
        right.append(own < share)
    said = [np.where(it, gold, 1 - gold) for it in right]
    return [classification.measure(gold, it, 2) for it in said], right


def test_a_model_does_not_differ_from_itself():
    (first, _), _ = models(0.8, 0.8)
    for found in differences(first, first, SIZE).values():
        assert found == {"difference": 0, "interval": [0, 0], "p": 1}


def test_differences_are_first_minus_second_and_change_their_sign():
    (first, second), _ = models(0.85, 0.75)
    found, back = differences(first, second, SIZE), differences(second, first, SIZE)
    here, there = whole(first, SIZE), whole(second, SIZE)
    assert found.keys() == here.keys()
    for name, one in found.items():
        assert one["difference"] == here[name] - there[name] == -back[name]["difference"]
        assert one["interval"] == pytest.approx([-bound for bound in reversed(back[name]["interval"])])
        assert one["p"] == back[name]["p"]
        assert one["interval"][0] <= one["difference"] <= one["interval"][1]


def test_p_is_about_that_of_the_exact_test():
    """McNemar's, on the examples that only one of the models gets right, for small and for large differences."""
    for seed, (first, second) in enumerate([(0.8, 0.8), (0.82, 0.78), (0.83, 0.77), (0.9, 0.7)]):
        measures, (one, other) = models(first, second, seed=seed)
        only = [int((one & ~other).sum()), int((other & ~one).sum())]
        expected = stats.binomtest(only[0], sum(only)).pvalue
        p = differences(*measures, SIZE)["accuracy"]["p"]
        assert p == pytest.approx(expected, abs=0.06)
        assert 1 / RESAMPLES <= p <= 1


def test_the_same_examples_are_drawn_for_both():
    """Drawn apart, the interval would be wider: models that err on the same examples differ little by chance."""
    measures, _ = models(0.82, 0.78, together=1.0)
    low, high = differences(*measures, SIZE)["accuracy"]["interval"]
    apart = [intervals(measure, SIZE)["accuracy"] for measure in measures]
    independent = np.hypot(*(bound[1] - bound[0] for bound in apart))
    assert high - low < 0.6 * independent
    assert low > 0, "so that even 4 points are sure"


def test_it_is_the_same_each_time_and_serves_any_metric():
    rng = np.random.default_rng(0)
    gold = rng.normal(size=SIZE)
    first, second = (regression.measure(gold, gold + noise * rng.normal(size=SIZE)) for noise in (0.5, 1.0))
    found = differences(first, second, SIZE)
    assert found == differences(first, second, SIZE)
    assert found != differences(first, second, SIZE, seed=1)
    assert found.keys() == {"pearson", "spearman"}
    assert all(one["p"] == 1 / RESAMPLES and one["interval"][0] > 0 for one in found.values())
