"""Correlations are scipy's, with ties and without; where a side is constant they are not defined, and 0."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from unmask.metrics.regression import measure, scores


def reference(gold, said):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy warns of constants
        found = {"pearson": stats.pearsonr(gold, said).statistic, "spearman": stats.spearmanr(gold, said).statistic}
    return {name: 100 * float(np.nan_to_num(value)) for name, value in found.items()}


@pytest.mark.parametrize("size", [2, 3, 10, 1000])
@pytest.mark.parametrize("ties", [False, True])
def test_correlations_of_random_values(size, ties):
    rng = np.random.default_rng(size)
    for _ in range(20):
        gold = rng.normal(size=size)
        said = gold + rng.normal(size=size)
        if ties:
            gold, said = np.round(gold), np.round(2 * said) / 2
        assert scores(gold, said) == pytest.approx(reference(gold, said), abs=1e-6)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=30))
def test_correlations_where_ties_abound(pairs):
    gold, said = np.array(pairs, float).T
    assert scores(gold, said) == pytest.approx(reference(gold, said), abs=1e-6)


@pytest.mark.parametrize(
    ("gold", "said"),
    [([1, 2, 3], [2, 2, 2]), ([2, 2, 2], [1, 2, 3]), ([1, 1], [1, 1]), ([1], [2]), ([0.1] * 3, [0.1] * 3)],
)
def test_a_constant_side_is_worth_nothing(gold, said):
    assert scores(np.array(gold, float), np.array(said, float)) == {"pearson": 0, "spearman": 0}


def test_order_alone_decides_spearman():
    gold = np.array([1.0, 2, 3, 4, 5])
    assert scores(gold, gold**5)["spearman"] == pytest.approx(100)
    assert scores(gold, gold**5)["pearson"] < 95
    assert scores(gold, -gold) == pytest.approx({"pearson": -100, "spearman": -100})


def test_a_ranking_without_shared_ranks_is_noticed():
    gold, said = np.array([1.0, 1, 2, 3]), np.array([2.0, 1, 1, 3])
    ranks = (np.argsort(np.argsort(gold)), np.argsort(np.argsort(said)))
    assert abs(100 * np.corrcoef(*ranks)[0, 1] - scores(gold, said)["spearman"]) > 1


def test_any_selection_can_be_measured():
    rng = np.random.default_rng(0)
    gold, said = rng.normal(size=(2, 50))
    chosen = rng.integers(50, size=50)
    assert measure(gold, said)(chosen) == scores(gold[chosen], said[chosen])
