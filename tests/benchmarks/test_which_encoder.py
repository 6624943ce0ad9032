"""The comparison of encoders runs at toy size: it is the product's, with all of its tasks."""

import pytest

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(1800)]


def test_two_arms_are_compared_on_three_tasks(benchmark_module, run_main, records, shared, minilm, tmp_path):
    run_main(benchmark_module("which_encoder"), "--toy", "--arms", "bert", "random", "--out", str(tmp_path / "run"))
    found = records("which_encoder")
    assert {(run["arm"], run["task"]) for run in found if run["arm"] != "first look"} == {
        (arm, task) for arm in ("bert", "random") for task in ("sentiment", "entailment", "entities", "mean")
    }
    for run in found:
        if run["arm"] != "first look":
            low, high = run["interval"]
            assert 0 <= low <= run["score"] <= high <= 100 and run["latency_ms"] > 0
    assert (tmp_path / "run" / "comparison" / "report.html").exists()
