"""What limits many GPUs is simulated, measured and calculated at toy size."""

import pytest


def test_shares_by_cost_wait_less(benchmark_module, records, run_main, monkeypatch):
    module = benchmark_module("many_gpus")
    monkeypatch.setattr(module, "BALANCED", ("bert-mini",))
    run_main(module, "balance", "--processes", "4", "--each", "8", "--steps", "2")
    (found,) = records("many_gpus")
    assert (found["recipe"], found["processes"], found["each"]) == ("bert-mini", 4, 8)
    assert 1 <= found["by_cost"] < found["by_length"]  # of the documentation, which changes


def test_reading_is_measured_and_a_training_planned(benchmark_module, records, run_main, monkeypatch):
    module = benchmark_module("many_gpus")
    monkeypatch.setattr(module, "FED", ("roberta-large",))
    run_main(module, "feed", "plan", "--seconds", "0.1", "--tokens", "2048", "--gpus", "8", "1000000")
    feed, few, many = records("many_gpus")
    assert (feed["recipe"], feed["length"]) == ("roberta-large", 512)
    assert 0 < feed["made_per_second"] < feed["cut_per_second"]
    assert feed["forward_flops_per_token"] > 2 * 302e6, "two for each weight of a layer"
    assert (few["bottleneck"], many["bottleneck"]) == ("computing", "reading")
    assert few["hours"] == pytest.approx(500_000 * few["compute_seconds"] / 3600)
    assert many["hours"] == pytest.approx(500_000 * many["read_seconds"] / 3600)
    assert many["wait_seconds"] < many["sum_seconds"]
