"""Selected texts beside an independent computation: pandas for the order, scikit-learn for the clusters."""

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans

from unmask.inference import selection
from unmask.inference.selection import balanced_order, draw_centers, select_diverse


@pytest.mark.seeds(50)
def test_classes_take_turns(seed):
    rng = np.random.default_rng(seed)
    number, classes = int(rng.integers(1, 60)), int(rng.integers(1, 6))
    frame = pd.DataFrame({"uncertainty": rng.integers(0, 20, number) / 20, "of": rng.integers(0, classes, number)})
    ordered = frame.sort_values("uncertainty", ascending=False, kind="stable")
    ordered["turn"] = ordered.groupby("of").cumcount()
    order = balanced_order(frame["uncertainty"].to_numpy(), frame["of"].to_numpy())
    assert sorted(order.tolist()) == list(range(number))
    expected = ordered.loc[order, ["turn", "uncertainty"]]
    assert expected["turn"].is_monotonic_increasing
    for _, same in expected.groupby("turn"):
        assert same["uncertainty"].is_monotonic_decreasing
    for _, same in frame.loc[order].groupby("of"):
        assert same["uncertainty"].is_monotonic_decreasing


@pytest.mark.seeds(50)
def test_clusters_are_those_of_scikit_learn(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(selection, "BLOCK", int(rng.integers(1, 400)))
    number, count = int(rng.integers(10, 80)), int(rng.integers(2, 9))
    vectors, weights = rng.normal(size=(number, 5)), rng.random(number) + 0.01
    selected = select_diverse(vectors, weights, count, np.random.default_rng(seed))
    centers = vectors[draw_centers(vectors, weights, count, np.random.default_rng(seed))]
    clusters = KMeans(count, init=centers, n_init=1, tol=0, max_iter=selection.ITERATIONS, algorithm="lloyd")
    distances = clusters.fit(vectors, sample_weight=weights).transform(vectors)
    nearest = np.where(clusters.labels_[:, None] == np.arange(count), distances, np.inf).argmin(0)
    assert sorted(selected.tolist()) == sorted(nearest.tolist())


def test_equal_vectors_are_selected_too():
    vectors = np.repeat(np.eye(3), 4, axis=0)
    selected = select_diverse(vectors, np.ones(12), 6, np.random.default_rng(0))
    assert len(set(selected.tolist())) == 6
    assert {index // 4 for index in selected} == {0, 1, 2}
    assert select_diverse(vectors[:2], np.ones(2), 6, np.random.default_rng(0)).tolist() == [0, 1]


def test_first_centers_are_far_from_each_other_and_heavy():
    """Those of k-means++: the second is drawn by weight times squared distance."""
    vectors, weights = np.array([[0.0], [1.0], [3.0]]), np.array([1.0, 2.0, 1.0])
    second = np.zeros(3)
    for seed in range(4000):
        first, index = draw_centers(vectors, weights, 2, np.random.default_rng(seed))
        second[index] += first == 0
    assert second[0] == 0
    assert second[2] / second[1] == pytest.approx(9 / 2, rel=0.25)
