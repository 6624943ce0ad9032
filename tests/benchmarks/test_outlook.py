"""The benchmark of outlooks runs at toy size."""

import random


def test_curves_are_extrapolated_to_larger_budgets(benchmark_module, run_main, records, monkeypatch):
    module, rng = benchmark_module("outlook"), random.Random(0)
    kinds = [[f"{kind}{number}" for number in range(300)] for kind in ("dog", "cat")]
    words = [rng.choices(kinds[number % 2], k=2) + rng.choices([*kinds[0], *kinds[1]], k=4) for number in range(1500)]
    examples = [module.Labelled(" ".join(text), str(number % 2)) for number, text in enumerate(words)]
    suggested = [{"labels": labels, "score": 50 + labels / 10} for labels in (20, 40, 60, 80, 100, 200)]
    monkeypatch.setattr(module, "texts", lambda: [("toy", examples)])
    monkeypatch.setattr(module, "SCORED", 200)
    monkeypatch.setattr(module, "SMALLEST", 10)
    monkeypatch.setattr(module, "LARGEST", 320)
    monkeypatch.setattr(module, "PLANTED", 40)
    run = {"data": "toy", "strategy": "random", "seed": 0, "curve": [*suggested, {"labels": "mean", "score": 57}]}
    monkeypatch.setattr(module, "read", lambda path: {"runs": [run]})
    run_main(module)
    planted = [run for run in records("outlook") if run["data"].startswith("planted: ")]
    assert {run["times"] for run in planted} == {4.0, 10.0}
    assert all(0.5 < run["inside"] / run["runs"] <= 1 for run in planted)
    found = [run for run in records("outlook") if run not in planted]
    names = {f"toy, {analyzer}, {method}" for analyzer in ("word", "char") for method in ("bayes", "logistic")}
    assert {one["data"] for one in found} == {*names, "labels next: toy, random, seed 0"}
    for one in found:
        assert 0 <= one["inside"] <= one["runs"] and one["width"] >= 0
        assert one["times"] == one["target"] / max(one["fitted"]) in (2, 4, 8)
