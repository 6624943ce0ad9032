"""The rows of a table are groups of records, and its columns their statistics."""

import pytest
from scipy import stats

RUNS = [
    {"start": start, "seed": seed, "metrics": {"f1": f1}}
    for start, scores in {"random": [50.0, 52.0, 51.0], "ours": [60.0, 61.0, 65.0], "one": [7.0]}.items()
    for seed, f1 in enumerate(scores)
]


@pytest.fixture
def pivot(benchmark_module):
    return benchmark_module("pivot")


def rows_of(pivot, runs, **spec):
    return pivot.pivot({"result": "x", **spec}, lambda name: runs)


def test_rows_are_groups_and_columns_their_statistics(pivot):
    columns = [
        {"title": "n", "value": "seed", "show": "count"},
        {"title": "F1", "value": "metrics.f1", "show": "spread"},
        {"title": "each", "value": "metrics.f1", "show": "each", "format": ".0f"},
        {"title": "median", "value": "metrics.f1", "show": "median"},
        {"title": "ratio", "value": "metrics.f1", "over": {"start": "random"}, "format": ".2f"},
        {"title": "nothing", "value": "metrics.none"},
    ]
    names = {"start": {"ours": "Ours"}}
    found = rows_of(pivot, RUNS, rows=["start"], columns=columns, names=names, order={"start": ["ours", "one"]})
    assert found == [
        ["start", "n", "F1", "each", "median", "ratio", "nothing"],
        ["Ours", "3", "62.0 ± 2.6", "60, 61, 65", "61.0", "1.20", ""],
        ["one", "1", "7.0", "7", "7.0", "0.14", ""],
        ["random", "3", "51.0 ± 1.0", "50, 52, 51", "51.0", "1.00", ""],
    ]


GAIN = {"title": "gain", "value": "metrics.f1", "minus": {"start": "random"}}


def test_a_difference_of_arms_with_the_same_seeds_has_a_paired_interval_and_single_runs_have_none(pivot):
    rows = dict(rows_of(pivot, RUNS, rows=["start"], columns=[GAIN])[1:])
    low, high = stats.ttest_rel([60, 61, 65], [50, 52, 51]).confidence_interval(0.95)
    mean, error = 11, stats.sem([60 - 50, 61 - 52, 65 - 51])
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 2, loc=mean, scale=error))
    assert rows == {"ours": f"+11.0 [{low:+.1f}, {high:+.1f}]"}
    assert dict(rows_of(pivot, RUNS[::-1], rows=["start"], columns=[GAIN])[1:]) == rows, "pairs are found by their seed"


@pytest.mark.parametrize(
    "seeds",
    [[0, 1, 3], [0, 1, None], [0, 1, 1]],
    ids=["other seeds", "a record without a seed", "a seed twice"],
)
def test_a_difference_of_arms_without_pairs_has_welchs_interval(pivot, seeds):
    ours = [run for run in RUNS if run["start"] == "ours"]
    others = [run for run in RUNS if run["start"] == "random"]
    for run, seed in zip(ours, seeds, strict=True):
        changed = {**run, "seed": seed}
        others.append({key: value for key, value in changed.items() if value is not None})
    rows = dict(rows_of(pivot, others, rows=["start"], columns=[GAIN])[1:])
    low, high = stats.ttest_ind([60, 61, 65], [50, 52, 51], equal_var=False).confidence_interval(0.95)
    assert rows == {"ours": f"+11.0 [{low:+.1f}, {high:+.1f}]"}


def test_arms_of_different_size_have_welchs_interval(pivot):
    assert pivot.paired({0: [1.0], 1: [2.0]}, {0: [3.0], 1: [5.0]}) == [(1.0, 3.0), (2.0, 5.0)]
    assert pivot.paired({0: [1.0], 1: [2.0]}, {0: [3.0], 1: [5.0], 2: [4.0]}) == []
    assert pivot.paired({0: [1.0]}, {0: [3.0]}) == []
    low, high = stats.ttest_ind([1, 2], [3, 5, 4], equal_var=False).confidence_interval(0.95)
    found = pivot.difference({0: [1.0], 1: [2.0]}, {0: [3.0], 1: [5.0], 2: [4.0]}, {"format": ".2f"})
    assert found == f"-2.50 [{low:+.2f}, {high:+.2f}]"


def test_each_row_is_compared_with_a_record_of_its_own(pivot):
    baselines = {"ours": "random", "one": "ours"}
    column = {**GAIN, "minus": {"start": "@baseline"}, "single": True, "format": ".0f"}
    runs = [{**run, "baseline": baselines.get(run["start"], "none")} for run in RUNS]
    rows = dict(rows_of(pivot, runs, rows=["start"], columns=[column])[1:])
    assert rows.keys() == baselines.keys()
    assert rows["ours"].startswith("+11 [") and rows["one"] == "-55"


def test_seeds_that_all_differ_by_the_same_have_an_interval_without_width(pivot):
    assert pivot.difference({0: [1.5], 1: [2.5]}, {0: [1.0], 1: [2.0]}) == "+0.5 [+0.5, +0.5]"


def test_a_single_run_has_a_difference_without_an_interval_where_it_is_asked_for(pivot):
    column = {**GAIN, "single": True, "format": ".0f"}
    rows = dict(rows_of(pivot, RUNS, rows=["start"], columns=[column])[1:])
    assert rows.keys() == {"ours", "one"}
    assert rows["one"] == "-44"


def test_a_column_shows_the_last_point_of_a_curve_until_a_limit(pivot):
    curves = {"slow": [(0, 0.0), (70, 1.0), (200, 3.0)], "fast": [(60, 4.0), (130, 5.0)]}
    runs = [
        {"case": case, "heldout": [{"seconds": seconds, "accuracy": value} for seconds, value in curve]}
        for case, curve in curves.items()
    ]
    columns = [
        {"title": f"{seconds} s", "value": "accuracy", "curve": "heldout", "until": {"seconds": seconds}, "scale": 10}
        for seconds in (59, 60, 199, 200)
    ]
    assert rows_of(pivot, [*runs, {"case": "none"}], rows=["case"], columns=columns)[1:] == [
        ["fast", "", "40.0", "50.0", "50.0"],
        ["slow", "0.0", "0.0", "10.0", "30.0"],
    ]


def test_a_column_shows_where_a_curve_reaches_a_limit(pivot):
    curve = [{"tokens": tokens, "loss": loss} for tokens, loss in ((0, 9.0), (1, 6.0), (2, 5.0), (3, 5.5), (4, 4.0))]
    columns = [
        {"title": f"{loss}", "value": "tokens", "curve": "curve", "reached": {"loss": loss}, "format": ".0f"}
        for loss in (6.0, 5.2, 3.0)
    ]
    assert rows_of(pivot, [{"case": "x", "curve": curve}], rows=["case"], columns=columns)[1:] == [["x", "1", "2", ""]]


def test_a_single_value_shows_its_interval(pivot):
    run = {"a": 1, "score": 3.0, "intervals": {"score": [2.0, 4.5]}}
    column = {"title": "s", "value": "score", "interval": "intervals.score", "show": "spread"}
    assert rows_of(pivot, [run], rows=["a"], columns=[column])[1] == ["1", "3.0 [2.0, 4.5]"]


def test_lists_are_split_and_their_items_filtered(pivot):
    runs = [{"case": "x", "curve": [{"tokens": i, "loss": 10.0 - i} for i in range(11)]}]
    column = {"title": "loss", "value": "loss"}
    where = {"case": "x", "tokens": [0, 5, 10]}
    found = rows_of(pivot, runs, explode="curve", where=where, rows=["tokens"], columns=[column])
    assert found[1:] == [["0", "10.0"], ["5", "5.0"], ["10", "0.0"]]
    assert pivot.value_at(runs[0], "curve.-1.tokens") == 10
    assert pivot.value_at(runs[0], "curve.11.tokens") is pivot.value_at(runs[0], "none.tokens") is None


def test_numbers_of_a_list_are_values_by_seed(pivot):
    """So they are paired, as those of records for each seed."""
    lists = {start: [run["metrics"]["f1"] for run in RUNS if run["start"] == start] for start in ("random", "ours")}
    runs = [{"start": start, "scores": scores} for start, scores in lists.items()]
    column = {"title": "d", "minus": {"start": "random"}}
    by_list = rows_of(pivot, runs, explode="scores", rows=["start"], columns=[{**column, "value": "scores"}])
    by_record = rows_of(pivot, RUNS[:6], rows=["start"], columns=[{**column, "value": "metrics.f1"}])
    assert by_list == by_record and by_list[1][1].startswith("+11.0 [")


def test_columns_across_a_key_and_rows_that_are_complete(pivot):
    runs = [{"a": a, "engine": e, "t": t} for a, e, t in ((1, "x", 1.0), (1, "y", 2.0), (2, "x", 3.0))]
    spec = {"rows": ["a"], "columns": [{"title": "{}!", "across": "engine", "value": "t"}], "order": {"engine": ["y"]}}
    assert rows_of(pivot, runs, **spec) == [["a", "y!", "x!"], ["1", "2.0", "1.0"], ["2", "", "3.0"]]
    assert rows_of(pivot, runs, **spec, complete=True) == [["a", "y!", "x!"], ["1", "2.0", "1.0"]]


def test_the_best_setting_is_chosen_on_other_runs(pivot):
    tried = [{"task": "t", "rate": rate, "try": True, "score": score} for rate, score in ((1, 5.0), (2, 7.0), (4, 7.0))]
    final = [{"task": "t", "rate": rate, "try": False, "score": 9.0} for rate in (1, 2, 4)]
    others = [{"task": "t", "try": False, "score": 1.0}]
    found = pivot.choose([*tried, *final, *others], by=["task"], over="rate", value="score", among={"try": True})
    assert [one.get("rate") for one in found if one["chosen"] and not one["try"]] == [2, None]


def test_rows_of_figures_from_several_results(pivot):
    one = {"result": "x", "where": {"start": "ours"}, "value": "metrics.f1", "show": "spread"}
    spec = {"titles": ["what", "F1"], "cells": [["ours", one], ["gain", {**one, "minus": {"start": "random"}}]]}
    found = pivot.pivot(spec, lambda name: RUNS)
    assert found[:2] == [["what", "F1"], ["ours", "62.0 ± 2.6"]]
    assert found[2][1].startswith("+11.0 [")
