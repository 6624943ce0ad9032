"""The benchmark of rare labels runs at toy size."""

import numpy as np
import pytest

from unmask.workflows.finetuning import job


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


def test_fine_tuned_models_are_scored_on_the_same_draws(
    rare_labels, run_main, records, published, monkeypatch, tmp_path
):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(rare_labels, "minilm", lambda: str(published))
    monkeypatch.setattr(job, "MIN_STEPS", 40)
    labels, _ = toy(600, rng)
    texts = [[f"{'dog' if label == 'network' else 'cat'} {n}" for n, label in enumerate(labels)]] * 2
    monkeypatch.setattr(
        rare_labels, "texts_of", lambda name: [[rare_labels.Labelled(t, "") for t in part] for part in texts]
    )
    (tmp_path / "rare_labels").mkdir()
    np.savez(tmp_path / "rare_labels" / "topics.npz", *[labels, np.zeros((600, 1))] * 2)
    run_main(rare_labels, "topics", "--full", "--seeds", "0", "--runs", str(tmp_path))
    runs = {run["way"]: run for run in records("rare_labels")}
    assert set(runs) == {"without", "default", "balanced"} and {run["learned"] for run in runs.values()} == {"full"}
    assert runs["without"]["average_precision"] == runs["default"]["average_precision"] > 0
    assert runs["default"]["f1"] >= runs["without"]["f1"] and runs["balanced"] != runs["default"]
