"""The peers of few labels run at toy size, on the draws of the comparison."""

import numpy as np
import pytest

from unmask.workflows.comparing.settings import Comparison, TaskData


@pytest.mark.minilm
def test_peers_learn_from_the_draws_of_the_comparison(benchmark_module, run_main, records, monkeypatch, tmp_path):
    few_labels = benchmark_module("few_labels")
    rng = np.random.default_rng(0)
    words = {"good": "fine warm bright happy", "bad": "cold dark broken sad"}
    lines = [f"{' '.join(rng.choice(words[label].split(), 3))} {n}\t{label}" for n in range(40) for label in words]
    for name, part in (("train", lines[:60]), ("test", lines[60:])):
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n" + "\n".join(part) + "\n")
    data = TaskData(train=[str(tmp_path / "train.tsv")], test=[str(tmp_path / "test.tsv")], examples=[8, 60])
    comparison = Comparison(arms=["random"], tasks={"words": data}, seeds=2)
    monkeypatch.setattr(few_labels, "read_file", lambda *given: comparison)
    run_main(few_labels, "logistic", "--runs", str(tmp_path))
    few, many = records("comparisons")
    assert (few["task"], many["task"]) == ("words-8", "words-60")
    for run in (few, many):
        assert run["arm"] == "logistic" and len(run["seeds"]) == 2 and 0 <= run["calibration"] <= 100
        assert run["score"] == pytest.approx(sum(run["seeds"]) / 2, abs=0.01)
    assert many["score"] > 90


@pytest.mark.minilm
def test_a_label_that_no_example_has_is_never_predicted(benchmark_module):
    few_labels = benchmark_module("few_labels")
    rows = [
        few_labels.Row({"text": text, "text_b": text, "label": label}, "x", 1)
        for text, label in (("a", "x"), ("b", "y"))
    ]
    probabilities = few_labels.logistic(rows, rows, ["x", "z", "y"])
    assert probabilities.shape == (2, 3) and probabilities[:, 1].tolist() == [0, 0]
    np.testing.assert_allclose(probabilities.sum(1), 1)
