"""Reports of runs."""

import json
import math
import re

import msgspec

from unmask.tasks.classification import Classification
from unmask.tasks.ranking import Ranking
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.report import Remarks, finetuning_report, pretraining_report
from unmask.training.runs.summary import Reached


def test_plots_that_are_there_are_shown(make_run):
    run = RunDirectory(make_run())
    run.plots.mkdir()
    for name in ("confusion.svg", "training.svg"):
        (run.plots / name).touch()
    result = {"metrics": {"accuracy": 50.0}}
    text = finetuning_report(run, Classification.card, ("good", "好"), Reached(1, 1, 1.0), 3, result)
    assert "![confusion](plots/confusion.svg)\n\n![training](plots/training.svg)" in text


def test_values_that_are_not_finite_are_reported_as_such(make_run):
    run = RunDirectory(make_run())
    lines = [
        {"kind": "heldout", "step": step, "loss": loss, "replaced_token_loss": loss, "replaced_token_baseline": 0.9}
        for step, loss in ((0, 10.0), (9, math.nan))
    ]
    run.metrics.write_bytes(
        b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    )  # as a run writes them: null for NaN
    text = pretraining_report(run, "electra-mini", Reached(9, 9000, 1.0), Remarks())
    assert "| loss | 10.0000 | not finite |" in text
    assert "| replaced_token_loss | 10.0000 | not finite |" in text


def test_the_remarks_of_the_objectives_are_in_the_report(make_run):
    run = RunDirectory(make_run())
    (run.path / "metrics.jsonl").write_text(json.dumps({"kind": "heldout", "step": 0, "loss": 1.0}))
    remarks = Remarks(
        stages=["length 64: 3 steps"],
        notes=["A note."],
        warnings=["Nothing was learned."],
        usage=["unmask fill --model X"],
    )
    text = pretraining_report(run, "gpt-mini", Reached(8, 8000, 1.0), remarks)
    for line in ("A note.", "**Nothing was learned.**", "unmask fill --model X", "Stages:", "- length 64: 3 steps"):
        assert f"\n{line}\n" in text
    run.metrics.unlink()
    blind = pretraining_report(run, "gpt-mini", Reached(8, 8000, 1.0), remarks)
    assert "No held-out text was scored" in blind
    assert "\nA note.\n" in blind
    assert "\n**Nothing was learned.**\n" in blind
    plain = pretraining_report(run, "gpt-mini", Reached(8, 8000, 1.0), Remarks())
    assert "A note." not in plain
    assert "Stages" not in plain


def test_models_are_used_by_commands_whatever_trained_them(make_run):
    """Also where messages are written as Python code, as in this test."""
    text = finetuning_report(RunDirectory(make_run()), Ranking.card, (), Reached(1, 1, 1.0), 3, {})
    assert re.search(r"\nunmask predict --model \S+ \"A query\.\" --text-b \"A passage\.\"\n", text)
    assert re.search(r"\nunmask evaluate --model \S+ --data FILE\n", text)
