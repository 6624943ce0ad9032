"""Reports of runs and model cards."""

import json
import math

import msgspec
import pytest

from unmask.tasks import TASKS
from unmask.tasks.classification import Classification
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.report import Remarks, finetuning_report, model_card, pretraining_report
from unmask.training.runs.summary import Reached


def test_the_numbers_in_the_plot_are_listed_if_the_font_lacks_a_label(make_run):
    run = RunDirectory(make_run())
    run.plots.mkdir()
    for name in ("confusion.png", "training.png"):
        (run.plots / name).touch()
    for labels, expected in ((("good", "好"), "\n\n1: good  \n2: 好  \n"), (("no", "yes"), "\n")):
        text = finetuning_report(run, Classification(), labels, Reached(1, 1, 1.0), 3, {"metrics": {"accuracy": 50.0}})
        assert f"![confusion](plots/confusion.png){expected}\n![training]" in text


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
    plain = pretraining_report(run, "gpt-mini", Reached(8, 8000, 1.0), Remarks())
    assert "A note." not in plain
    assert "Stages" not in plain


def test_the_metadata_of_a_card_are_those_of_the_hub():
    """As huggingface_hub reads and validates them; what is not a number, and what is not known, is left out."""
    hub = pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")
    yaml = pytest.importorskip("yaml", reason="the extra hub is not installed")
    scores = {"accuracy": 91.5, "loss": math.nan}
    text = model_card(
        *("A title: with a colon", "About.", scores),
        pipeline="text-classification",
        revision="someone/model@abc",
        data=["dev.tsv"],
    )
    found = hub.ModelCardData(**yaml.safe_load(text.split("---")[1]), model_name="A title: with a colon")
    assert (found.library_name, found.pipeline_tag) == ("transformers", "text-classification")
    assert found.base_model == "someone/model" and found.license is None and found.language is None
    card = hub.ModelCard(text).data
    (result,) = card.eval_results
    assert (card.model_name, result.task_type, result.dataset_name) == (
        found.model_name,
        "text-classification",
        "dev.tsv",
    )
    assert (result.metric_type, result.metric_value) == ("accuracy", 91.5)
    assert hub.ModelCard(model_card("T", "About.", {})).data.to_dict() == {"library_name": "transformers"}
    assert {task.pipeline for task in TASKS.values()} - {""} <= PIPELINES


PIPELINES = {"text-classification", "text-ranking", "sentence-similarity", "multiple-choice"} | {
    *("question-answering", "token-classification", "fill-mask"),
}
"""Tags of the Hub, of those that exist."""


def test_a_card_without_metrics():
    assert model_card("T", "About.", {}).endswith("# T\n\nAbout.\n\n")
