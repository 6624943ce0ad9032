"""The benchmark of rare labels runs at toy size."""

import numpy as np
import pytest


@pytest.fixture
def rare_labels(benchmark_module, monkeypatch):
    module = benchmark_module("rare_labels")
    monkeypatch.setitem(module.SIZES, "topics", 300)
    monkeypatch.setitem(module.RATIOS, "topics", (50,))
    return module


def toy(size, rng):
    """Return labels, one of ten of them rare, and vectors that tell them apart."""
    labels = np.array(["network" if number % 10 == 0 else "other" for number in range(size)])
    return labels, rng.normal(size=(size, 8)) + 1.5 * (labels == "network")[:, None]


def test_every_way_is_scored_on_each_draw(rare_labels, run_main, records, tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "rare_labels").mkdir()
    np.savez(tmp_path / "rare_labels" / "topics.npz", *toy(600, rng), *toy(400, rng))
    run_main(rare_labels, "topics", "--seeds", "0", "1", "--runs", str(tmp_path))
    runs = records("rare_labels")
    assert {(run["way"], run["seed"]) for run in runs} == {
        (way, seed) for way in ("without", "default", "tuned", "balanced") for seed in (0, 1)
    }
    by_way = {run["way"]: run for run in runs if run["seed"] == 0}
    assert all(run["rarest"] == 6 and 50 < run["f1_others"] <= 100 for run in runs)
    assert by_way["without"]["average_precision"] == by_way["default"]["average_precision"] > 20
    assert by_way["default"]["f1"] >= by_way["without"]["f1"]
