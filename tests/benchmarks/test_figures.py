"""Sentences of docs/comparing.md state what benchmarks/results has."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "comparing.md").read_text(encoding="utf8").split())


def records(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_bytes())["runs"]


def share(runs):
    """Return the share of predictions that lie in their intervals, in percent."""
    return f"{100 * sum(run['inside'] for run in runs) / sum(run['runs'] for run in runs):.0f}"


def span(values, digits=1):
    return f"{min(values):.{digits}f} to {max(values):.{digits}f} %"


@pytest.fixture(scope="module")
def coverage():
    found = {}
    for run in records("coverage"):
        found.setdefault(run["case"], []).append(run)
    return found


@pytest.fixture(scope="module")
def outlook():
    return records("outlook")


def test_intervals(coverage):
    runs = coverage["intervals"]
    arm, difference, percentiles = ([run[key] for run in runs] for key in ("arm", "difference", "percentiles"))
    assert f"cover the accuracy of an arm in {span(arm)} of draws" in PAGE
    assert f"the difference of two in {span(difference)}; percentiles of resampled" in PAGE
    assert f"seeds and examples, {span(percentiles, 0)};" in PAGE


def test_recommendations(coverage):
    two = [run["recommended"] for run in coverage["two same arms"]]
    assert f"one of two arms that are the same is recommended in {min(two):.1f} to {max(two):.0f} % of draws" in PAGE
    assert not any(run["recommended"] for run in coverage["five same arms"])
    assert not any(run["false"] for run in coverage["two different arms"])


def test_races(coverage):
    other, same = coverage["race of different arms"], coverage["race of same arms"]
    worst = [max(run["best_stopped"] for run in runs) for runs in (other, same)]
    assert f"the best is stopped in at most {worst[0]:.1f} % of draws if the others are 3 points worse" in PAGE
    assert f"in at most {worst[1]:.1f} % if all are the same;" in PAGE
    saved = [run["saved"] for run in other]
    assert f"on average {sum(saved) / len(saved):.0f} % of the runs are saved then, up to {max(saved):.0f} %" in PAGE


def test_extrapolations(outlook):
    planted = {
        (run["data"].partition("planted: ")[2], run["times"]): run for run in outlook if "planted" in run["data"]
    }
    real = [run for run in outlook if run["data"].count(",") == 2]
    by_times = {times: share([run for run in real if run["times"] == times]) for times in (4.0, 8.0)}
    assert f"{by_times[4.0]} % of the runs with 4 times the largest budget lie in the interval of 80 %" in PAGE
    assert f"{by_times[8.0]} % of those with 8 times" in PAGE
    exact, near = (
        [share([planted[kind, times]]) for times in (4.0, 10.0)] for kind in ("power law", "near its asymptote")
    )
    assert len({*near}) == 1
    assert f"{exact[0]} and {exact[1]} % lie inside, of those that" in PAGE
    assert f"have almost reached their asymptote {near[0]} %" in PAGE
    labels = [run for run in outlook if run["data"].startswith("labels next: ")]
    rare, others = ([run for run in labels if ("rare" in run["data"]) == is_rare] for is_rare in (True, False))
    assert f"of one seed only, {share(others)} %; of a rare label, {share(rare)} %." in PAGE
    rest = [share([run]) for (kind, _), run in planted.items() if kind in ("stops", "another exponent")]
    assert f"between one and four times the budget, {min(rest)} to {max(rest)} %." in PAGE
