"""The benchmarks of intervals, decisions and outlooks run at toy size."""

import numpy as np
import pytest


def test_coverage(benchmark_module, run_main, records, monkeypatch):
    coverage = benchmark_module("coverage")
    for name, value in (("EXAMPLES", (40,)), ("SEEDS", (3,)), ("DRAWS", 20), ("RESAMPLES", 50)):
        monkeypatch.setattr(coverage, name, value)
    run_main(coverage)
    runs = records("coverage")
    assert len(runs) == 6 * len(coverage.VARIANCES)
    for run in runs:
        values = {key: run[key] for key in run if key in ("arm", "difference", "false", "recommended", "best_stopped")}
        assert values and all(0 <= value <= 100 for value in values.values())
        assert run["case"] != "intervals" or min(run["arm"], run["difference"]) >= 70
    run_main(coverage, "two same arms")
    assert len(records("coverage")) == len(runs), "of the same case, the last one counts"


def test_planted_accuracies_are_reached(benchmark_module):
    coverage = benchmark_module("coverage")
    right = coverage.draw(np.random.default_rng(0), coverage.World((60.0, 97.0), 3, 500, 0.003), 40)
    assert right.shape == (40, 2, 3, 500)
    assert right.mean((0, 2, 3)) == pytest.approx([60, 97], abs=1.5)


def test_outlook(benchmark_module, records, monkeypatch):
    outlook = benchmark_module("outlook")
    rng = np.random.default_rng(0)
    features, labels = rng.random((3000, 20)), rng.integers(0, 2, 3000)
    features[:, 0] += labels
    monkeypatch.setattr(outlook, "SCORED", 200)
    curve = outlook.learning_curve(features, labels, "bayes")
    assert [budget for budget, seed, _ in curve if seed == 0] == [125, 250, 500, 1000, 2000]
    rising = [(budget, seed, 90 - 300 / np.sqrt(budget) + seed / 10) for budget, seed, _ in curve]
    outlook.check("toy", rising, [125, 250, 500], 2000)
    (run,) = records("outlook")
    assert (run["data"], run["times"], run["inside"], run["runs"]) == ("toy", 4.0, 3, 3)


@pytest.mark.parametrize("form", ["power law", "near its asymptote", "stops", "another exponent"])
def test_planted_curves(benchmark_module, records, monkeypatch, form):
    outlook = benchmark_module("outlook")
    accuracy = outlook.planted(np.random.default_rng(0), form)
    scores = accuracy(2.0 ** np.arange(-3, 9))
    assert form in outlook.FORMS and (np.diff(scores) >= 0).all() and (scores[-1] == scores[-2]) == (form == "stops")
    monkeypatch.setattr(outlook, "PLANTED", 3)
    outlook.check_planted(form)
    assert [(run["data"], run["times"], run["runs"]) for run in records("outlook")] == [
        (f"planted: {form}", times, 3) for times in (4.0, 10.0)
    ]
