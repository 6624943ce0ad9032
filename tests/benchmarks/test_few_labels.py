"""The benchmark of few labels runs at toy size."""

import numpy as np
import pytest


@pytest.fixture
def few_labels(benchmark_module):
    return benchmark_module("few_labels")


def toy(module):
    """Examples whose label is a word."""
    rng = np.random.default_rng(0)
    words = {"good": "fine warm bright happy", "bad": "cold dark broken sad"}
    examples = [
        module.Example((" ".join(rng.choice(words[label].split(), 3)) + f" {number}",), label)
        for number in range(60)
        for label in words
    ]
    return lambda: (examples[:80], examples[80:])


def test_each_way_learns_and_nothing_is_computed_twice(few_labels, run_main, records, monkeypatch, published):
    monkeypatch.setitem(few_labels.DATA, "sst2", toy(few_labels))
    monkeypatch.setattr(few_labels, "minilm", lambda: str(published))
    arguments = ("sst2", "--each", "4", "--draws", "2", "--ways", "default", "logistic")
    run_main(few_labels, *arguments)
    first = records("few_labels")
    assert {(run["way"], run["seed"]) for run in first} == {
        ("default", 0),
        ("default", 1),
        ("logistic", 0),
        ("logistic", 1),
    }
    assert all(run["accuracy"] > 70 and 0 <= run["calibration_error"] <= 100 for run in first)
    run_main(few_labels, *arguments)
    assert records("few_labels") == first
    run_main(few_labels, *arguments, "--split", "train")
    assert len(records("few_labels")) == 8


def test_a_draw_has_as_many_of_each_label(few_labels):
    examples = [few_labels.Example((f"{number}",), "abc"[number % 3]) for number in range(60)]
    drawn = few_labels.draw(examples, 5, 0)
    assert sorted(one.label for one in drawn) == ["a"] * 5 + ["b"] * 5 + ["c"] * 5
    assert len(set(drawn)) == 15 and drawn == few_labels.draw(examples, 5, 0) != few_labels.draw(examples, 5, 1)
