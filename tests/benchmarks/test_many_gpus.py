"""What limits many GPUs is measured and calculated at toy size."""

import pytest


def test_reading_is_measured(benchmark_module, records, run_main, monkeypatch):
    module = benchmark_module("many_gpus")
    for name, value in (("FED", ("roberta-large",)), ("SECONDS", 0.1), ("STEP", 4096), ("SHARES", 2)):
        monkeypatch.setattr(module, name, value)
    run_main(module, "feed")
    (feed,) = records("many_gpus")
    assert (feed["recipe"], feed["length"]) == ("roberta-large", 512)
    assert feed["made_per_second"] > 0 and feed["cut_per_second"] > 0


@pytest.mark.parametrize(("cut_per_second", "limit"), [(1e7, "reading"), (1e9, "sums of gradients")])
def test_a_training_is_planned_from_what_was_measured(
    cut_per_second, limit, benchmark_module, records, run_main, monkeypatch
):
    module = benchmark_module("many_gpus")
    module.add("many_gpus", {"recipe": "roberta-large"}, {"cut_per_second": cut_per_second, "made_per_second": 2e6})
    monkeypatch.setattr(module, "GPUS", (8, 1_000_000))
    run_main(module, "plan")
    _, few, many = records("many_gpus")
    assert (few["bottleneck"], many["bottleneck"]) == ("computing", limit)
    assert few["hours"] == pytest.approx(500_000 * few["compute_seconds"] / 3600)
    seconds = {"reading": many["read_seconds"], "sums of gradients": many["compute_seconds"] + many["wait_seconds"]}
    assert many["hours"] == pytest.approx(500_000 * seconds[limit] / 3600) and seconds[limit] == max(seconds.values())
    assert many["wait_seconds"] < many["sum_seconds"]
