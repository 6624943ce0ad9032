"""Metrics of several labels per text agree with scikit-learn, for all examples and for resampled ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score

from unmask.metrics.classification import measure_label_sets as measure
from unmask.metrics.intervals import intervals


def reference(gold, predicted, scores):
    present = [label for label in range(gold.shape[1]) if gold[:, label].any()]
    precision = [average_precision_score(gold[:, label], scores[:, label]) for label in present]
    return {
        "f1_micro": 100 * f1_score(gold, predicted, average="micro", zero_division=0),
        "f1_macro": 100 * f1_score(gold, predicted, average="macro", zero_division=0),
        "mean_average_precision": 100 * np.mean(precision) if precision else 0.0,
    }


def cases(seed, size, labels, decimals):
    rng = np.random.default_rng(seed)
    gold = rng.random((size, labels)) < rng.uniform(0.05, 0.6, labels)
    scores = np.round(rng.random((size, labels)) + 0.4 * gold, decimals)  # few decimals: many ties
    return gold, scores > 0.7, scores, rng


@given(st.integers(0, 1000), st.integers(2, 40), st.integers(2, 6), st.integers(0, 3))
def test_metrics_are_those_of_scikit_learn(seed, size, labels, decimals):
    gold, predicted, scores, rng = cases(seed, size, labels, decimals)
    metrics = measure(gold, predicted, scores)
    assert metrics(np.arange(size)) == pytest.approx(reference(gold, predicted, scores), abs=1e-9)
    drawn = rng.integers(0, size, size)
    assert metrics(drawn) == pytest.approx(reference(gold[drawn], predicted[drawn], scores[drawn]), abs=1e-9)


def test_intervals_contain_the_metrics():
    gold, predicted, scores, _ = cases(0, 200, 4, 8)
    metrics = measure(gold, predicted, scores)
    for name, (low, high) in intervals(metrics, 200).items():
        assert low < metrics(np.arange(200))[name] < high
