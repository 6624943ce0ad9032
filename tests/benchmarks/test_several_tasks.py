"""The benchmark of several tasks runs at toy size."""

import numpy as np
import pytest


@pytest.fixture
def several_tasks(benchmark_module):
    return benchmark_module("several_tasks")


def test_both_ways_are_scored_on_the_same_pairs(several_tasks, run_main, records, monkeypatch, published):
    rng = np.random.default_rng(0)

    def pairs(name):
        words = [tuple(map(str, rng.choice(["dog", "cat", "sea", "road"], 2))) for _ in range(40)]
        labels = {"entailment": lambda n, one, two: str(one == two), "relatedness": lambda n, *_: n % 5.0}
        return {
            task: [(f"a {one} {n}", f"the {two}", label(n, one, two)) for n, (one, two) in enumerate(words)]
            for task, label in labels.items()
        }

    monkeypatch.setattr(several_tasks, "sick", pairs)
    monkeypatch.setattr(several_tasks, "minilm", lambda: str(published))
    for name, value in (("PAIRS", {"entailment": 16, "relatedness": 20}), ("STEPS", 2), ("SCORED", 20)):
        monkeypatch.setattr(several_tasks, name, value)
    run_main(several_tasks, "--seeds", "0")
    found = records("several_tasks")
    assert [(run["task"], run["way"], run["examples"]) for run in found] == [
        ("entailment", "together", 16),
        ("entailment", "alone", 16),
        ("relatedness", "together", 20),
        ("relatedness", "alone", 20),
    ]
    assert all(-100 <= run["score"] <= 100 for run in found)
    low, high = found[0]["interval"]
    assert low <= found[0]["score"] - found[1]["score"] <= high
