"""Correlations agree with SciPy, with and without ties; undefined correlations are 0."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from unmask.metrics.regression import measure, scores


def reference(gold, predicted):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns about constant input
        found = {
            "pearson": stats.pearsonr(gold, predicted).statistic,
            "spearman": stats.spearmanr(gold, predicted).statistic,
        }
    return {name: 100 * float(np.nan_to_num(value)) for name, value in found.items()}


@pytest.mark.parametrize("size", [2, 3, 10, 1000])
@pytest.mark.parametrize("ties", [False, True])
def test_correlations_of_random_values(size, ties):
    rng = np.random.default_rng(size)
    for _ in range(20):
        gold = rng.normal(size=size)
        predicted = gold + rng.normal(size=size)
        if ties:
            gold, predicted = np.round(gold), np.round(2 * predicted) / 2
        assert scores(gold, predicted) == pytest.approx(reference(gold, predicted), abs=1e-6)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=30))
def test_correlations_with_many_ties(pairs):
    gold, predicted = np.array(pairs, float).T
    assert scores(gold, predicted) == pytest.approx(reference(gold, predicted), abs=1e-6)


@pytest.mark.parametrize(
    ("gold", "predicted"),
    [([1, 2, 3], [2, 2, 2]), ([2, 2, 2], [1, 2, 3]), ([1, 1], [1, 1]), ([1], [2]), ([0.1] * 3, [0.1] * 3)],
)
def test_a_constant_side_has_correlation_0(gold, predicted):
    assert scores(np.array(gold, float), np.array(predicted, float)) == {"pearson": 0, "spearman": 0}


def test_only_the_order_affects_spearman():
    gold = np.array([1.0, 2, 3, 4, 5])
    assert scores(gold, gold**5)["spearman"] == pytest.approx(100)
    assert scores(gold, gold**5)["pearson"] < 95
    assert scores(gold, -gold) == pytest.approx({"pearson": -100, "spearman": -100})


def test_a_ranking_without_shared_ranks_is_noticed():
    gold, predicted = np.array([1.0, 1, 2, 3]), np.array([2.0, 1, 1, 3])
    ranks = (np.argsort(np.argsort(gold)), np.argsort(np.argsort(predicted)))
    assert abs(100 * np.corrcoef(*ranks)[0, 1] - scores(gold, predicted)["spearman"]) > 1


def test_any_selection_can_be_measured():
    rng = np.random.default_rng(0)
    gold, predicted = rng.normal(size=(2, 50))
    chosen = rng.integers(50, size=50)
    assert measure(gold, predicted)(chosen) == scores(gold[chosen], predicted[chosen])
