"""Metrics from means of counts, beside scikit-learn, SciPy and the metrics of tasks."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from unmask.metrics.classification import measure
from unmask.metrics.comparison import counts

DRAWS = range(60)


def labels(seed, number):
    rng = np.random.default_rng(seed)
    examples = int(rng.integers(5, 80))
    gold = rng.integers(0, number, examples)
    predicted = np.where(rng.random((3, examples)) < rng.random(), gold, rng.integers(0, number, (3, examples)))
    return gold, predicted


@pytest.mark.parametrize("number", [2, 5])
def test_metrics_of_labels_are_those_of_scikit_learn(number):
    for seed in DRAWS:
        gold, predicted = labels(seed, number)
        means = counts.label_counts(gold, predicted, number).mean(1)
        for run, macro, matthews in zip(predicted, counts.f1_macro(means), counts.matthews(means), strict=True):
            assert macro == pytest.approx(100 * metrics.f1_score(gold, run, average="macro", zero_division=0))
            assert matthews == pytest.approx(100 * metrics.matthews_corrcoef(gold, run), abs=1e-9)
            assert macro == pytest.approx(measure(gold, run, number)(np.arange(len(gold)))["f1_macro"])


def test_f1_of_the_positive_label():
    for seed in DRAWS:
        gold, predicted = labels(seed, 2)
        values = counts.f1(counts.f1_counts(gold, predicted, positive=0).mean(1))
        expected = [100 * metrics.f1_score(gold, run, pos_label=0, zero_division=0) for run in predicted]
        assert values == pytest.approx(expected)


def test_pearson_is_that_of_scipy_also_of_large_values():
    for seed in DRAWS:
        rng = np.random.default_rng(seed)
        gold, scale = rng.normal(size=30), 10.0 ** rng.integers(-3, 9)
        predicted = scale * (1 + rng.random() * gold + 0.3 * rng.normal(size=(4, 30)))
        values = counts.pearson(counts.moments(gold + scale, predicted).mean(1))
        assert values == pytest.approx([100 * stats.pearsonr(gold, run).statistic for run in predicted], abs=1e-3)


def test_undefined_values_are_0():
    assert counts.f1(np.zeros(3)) == 0 and counts.ratio(np.zeros(2)) == 0
    assert counts.matthews(counts.label_counts(np.zeros(9, int), np.zeros((1, 9), int), 2).mean(1)) == 0
    assert counts.pearson(counts.moments(np.arange(9.0), np.full((1, 9), 0.1)).mean(1)) == 0


def test_groups_are_added_up():
    for seed in DRAWS:
        rng = np.random.default_rng(seed)
        values, groups = rng.random((2, 40, 3)), rng.integers(0, 7, 40).tolist()
        summed = counts.add_groups(values, groups)
        order = list(dict.fromkeys(groups))
        expected = [values[:, np.array(groups) == group].sum(1) for group in order]
        assert summed == pytest.approx(np.stack(expected, 1))
        assert counts.f1(summed.mean(1)) == pytest.approx(counts.f1(values.mean(1)))
