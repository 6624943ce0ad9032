"""Without TensorBoard, a run writes everything except its events."""

import json
import sys

import pytest
import torch

from unmask.model.model import load_model
from unmask.training.machine import Machine
from unmask.training.runs import extras
from unmask.training.runs.directory import RunDirectory
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.pretraining.pretrain import pretrain_corpus

CPU = Machine(torch.device("cpu"), "float32")


@pytest.fixture
def reviews(tmp_path):
    lines = [f"{word} near the sea\t{label}" for word, label in (("dog", "yes"), ("cat", "no")) for _ in range(15)]
    path = tmp_path / "train.tsv"
    path.write_text("\n".join(["text\tlabel", *lines]))
    return path


def tune(start, reviews, out, **options):
    settings = {"budget.steps": 3, "task.length": 24, "batch.sequences": 8}
    finetune("classification", start, [reviews], out, settings=settings, device="cpu", precision="float32", **options)


def test_tensorboard_is_imported_once_per_run(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr("unmask.training.runs.extras.event_writer", lambda: calls.append(1))
    with RunDirectory.create(tmp_path / "run", "", {}, {}) as run:
        for step in range(3):
            run.log({"kind": "train", "step": step, "loss": 1.0})
        assert len(run.read_metrics("train")) == 3
    assert calls == [1]


def test_runs_write_everything_else(hide, corpus, recipe, reviews, tmp_path, capsys):
    hide("tensorboard", "torch.utils.tensorboard")
    first, second = tmp_path / "pretrained", tmp_path / "tuned"
    pretrain_corpus(recipe, corpus, first, machine=CPU)
    tune(first, reviews, second)
    assert "tensorboard" not in capsys.readouterr().err.lower()
    assert set(json.loads((second / "dev.json").read_text())["metrics"]) >= {"accuracy"}
    assert load_model(second).labels == ("no", "yes")
    assert load_model(first).heads.keys() >= {"masked_lm"}
    for run in (first, second):
        report = (run / "report.md").read_text()
        assert "3 steps" in report or "10 steps" in report
        assert (run / "metrics.jsonl").read_text().count('"heldout"') >= 2
        assert "plots/training.svg" in report and (run / "plots" / "training.svg").exists()
        assert not (run / "events").exists()
    assert "plots/confusion.svg" in (second / "report.md").read_text()


def test_a_broken_tensorboard_counts_as_missing(monkeypatch):
    class Broken:
        def __getattr__(self, name):
            raise TypeError("Descriptors cannot be created directly")

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", Broken())
    assert extras.event_writer() is None
