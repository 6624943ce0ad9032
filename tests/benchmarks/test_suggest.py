"""The benchmark of suggestions runs at toy size."""

import random

import numpy as np
import pytest

from ..conftest import MEANINGS


def test_both_strategies_label_as_many_texts(benchmark_module, run_main, records, monkeypatch, published):
    module = benchmark_module("suggest")

    def draw(seed):
        rng = random.Random(seed)
        rare = [(f"a {rng.choice(MEANINGS['good'].split())} day {number}", "rare") for number in range(30)]
        others = [(f"a {rng.choice(MEANINGS['bad'].split())} night {number}", "other") for number in range(60)]
        scored = [("a warm day", "rare"), ("a cold night", "other")] * 10
        return [module.Labelled(*one) for one in rare + others], [module.Labelled(*one) for one in scored]

    monkeypatch.setattr(module, "minilm", lambda: published)
    monkeypatch.setattr(module, "DRAWS", 1)
    monkeypatch.setattr(module, "MOST", 40)
    monkeypatch.setitem(module.DATA, "rare", draw)
    run_main(module, "rare")
    found = records("suggest")
    assert [(one["data"], one["strategy"], one["seed"]) for one in found] == [
        ("rare", "random", 0),
        ("rare", "suggest", 0),
    ]
    for one in found:
        *points, mean = one["curve"]
        assert [point["labels"] for point in points] == [20, 40]
        assert mean["labels"] == "mean"
        assert mean["score"] == pytest.approx(np.mean([point["score"] for point in points]), abs=0.01)
        assert points[-1]["score"] > 60


def test_a_rare_topic_is_left_in_few_texts(benchmark_module, monkeypatch):
    module = benchmark_module("suggest")
    every = [module.Labelled(f"text {number}", (module.RARE, "text")[number % 2]) for number in range(2000)]
    monkeypatch.setattr(module, "POOL", 1000)
    monkeypatch.setattr(module, "every_paragraph", lambda: every)
    pool, scored = module.rare(0)
    labels = [one.label for one in pool]
    assert labels.count("rare") == round(0.02 * labels.count("other"))
    assert len(scored) == 1000 and 400 < sum(one.label == "rare" for one in scored) < 600
