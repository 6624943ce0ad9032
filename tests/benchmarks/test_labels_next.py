"""The benchmarks of suggestions, and of labels by their names, run at toy size."""

import json

import numpy as np
import pytest
import torch

from unmask.families.bert import BertSettings
from unmask.model.model import Model, save_model


@pytest.fixture
def labels_next(benchmark_module):
    return benchmark_module("labels_next")


def drawn(module, seed, rare=False):
    """Three clusters of texts, of which the first is half of all; or, of two labels, one that few texts have."""
    rng = np.random.default_rng(seed)
    of = rng.choice(3, 300, p=(0.5, 0.47, 0.03) if rare else (0.5, 0.3, 0.2))
    vectors = np.eye(3)[of] + rng.normal(0, 0.3, (300, 3))
    names = np.where(of == 2, "rare", "other") if rare else of.astype(str)
    every = module.Labeled(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), names)
    return every.take(np.arange(150)), every.take(np.arange(150, 300))


def test_both_strategies_label_as_many_texts(labels_next, run_main, records, monkeypatch):
    monkeypatch.setattr(labels_next, "MOST", 60)
    monkeypatch.setattr(labels_next, "topics", lambda: lambda seed: drawn(labels_next, seed))
    monkeypatch.setattr(labels_next, "sst2", lambda: lambda seed: drawn(labels_next, seed))
    monkeypatch.setattr(labels_next, "with_rare", lambda draw: lambda seed: drawn(labels_next, seed, rare=True))
    run_main(labels_next, "--draws", "2")
    found = records("suggest")
    assert {(one["data"], one["strategy"], one["seed"]) for one in found} == {
        (data, strategy, seed)
        for data in ("topics", "rare", "sst2")
        for strategy in ("random", "suggest")
        for seed in (0, 1)
    }
    for one in found:
        *points, mean = one["curve"]
        assert [point["labels"] for point in points] == [20, 40, 60]
        assert mean == {
            "labels": "mean",
            "score": pytest.approx(np.mean([point["score"] for point in points]), abs=0.01),
        }
        assert points[-1]["score"] > 60 or one["data"] == "rare"


def test_no_text_is_labeled_twice_and_uncertain_ones_are_chosen(labels_next):
    pool, _ = drawn(labels_next, 0)
    rng = np.random.default_rng(0)
    model = labels_next.LogisticRegression().fit(*pool.take(np.arange(40)))
    left = np.arange(40, 150)
    for strategy in ("random", "suggest"):
        for known in (None, model):
            chosen = labels_next.choose(strategy, pool, left, known, rng)
            assert len(set(chosen)) == 20 and set(chosen) <= set(left)
    assert labels_next.score(np.array(["rare", "other"]), np.array(["other", "other"])) == 0
    assert labels_next.score(np.array(["a", "b"]), np.array(["a", "a"])) == 50


def test_a_rare_topic_is_left_in_few_texts(labels_next):
    def draw(seed):
        names = np.array([labels_next.RARE, "text"] * 500)
        return (labels_next.Labeled(np.arange(1000)[:, None], names),) * 2

    pool, scored = labels_next.with_rare(draw)(0)
    assert (pool.labels == "rare").sum() == 10 and len(pool.labels) == 510
    assert (scored.labels == "rare").mean() == 0.5
    assert {int(row) % 2 for row in pool.vectors[pool.labels == "rare"][:, 0]} == {0}


def test_labels_by_their_names(benchmark_module, records, tokenizer, tmp_path, monkeypatch):
    module = benchmark_module("no_labels")
    torch.manual_seed(0)
    shape = BertSettings(layers=1, width=16, heads=2, feed_forward=32, positions=48, init_std=0.3)
    save_model(tmp_path / "body", Model(shape.build(tokenizer.size), tokenizer), "card")
    monkeypatch.setattr(module, "minilm", lambda: str(tmp_path / "body"))
    monkeypatch.setattr(module, "SHARED", tmp_path)
    (tmp_path / "pairs" / "snli").mkdir(parents=True)
    pairs = [
        {"sentence1": f"the {noun} sees the cat", "sentence2": f"a {noun}", "gold_label": label}
        for noun in ("dog", "river", "poem", "house")
        for label in ("entailment", "neutral", "contradiction")
    ]
    for name in ("train_2000", "test_2000"):
        (tmp_path / "pairs" / "snli" / f"{name}.jsonl").write_text("\n".join(map(json.dumps, pairs)))
        monkeypatch.setattr(module, "SUFFIX", ".jsonl")
    model = module.entailment(tmp_path)
    examples = [module.Labelled(*one) for one in (("the dog", "0"), ("the cat", "1"), ("a river", "0"))]
    module.measure("toy", model, examples, {"dog": "0", "cat": "1"})
    first, second = records("no_labels")
    assert (first["data"], first["chance"]) == ("snli", pytest.approx(100 / 3))
    assert second["accuracy"] in (0, pytest.approx(100 / 3), pytest.approx(200 / 3), 100)
    assert second["interval"][0] <= second["accuracy"] <= second["interval"][1]
    assert (second["labels"], second["chance"]) == ("dog, cat", pytest.approx(200 / 3))
