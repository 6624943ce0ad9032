"""Without matplotlib and TensorBoard, or if plotting fails, a run writes everything except plots and events."""

import io
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from unmask.model.model import load_model
from unmask.training.machine import Machine
from unmask.training.runs import extras, plots
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.extras import missing
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.pretraining.pretrain import pretrain_corpus

CPU = Machine(torch.device("cpu"), "float32")
PLOTS, EVENTS = ("matplotlib",), ("tensorboard", "torch.utils.tensorboard")
SMALL = [
    *("encoder.layers=1", "encoder.width=16", "encoder.heads=2", "encoder.feed_forward=32", "encoder.positions=64"),
    *("layout.length=48", "batch.tokens=256", "budget.steps=3"),
]


@pytest.fixture
def reviews(tmp_path):
    lines = [f"{word} near the sea\t{label}" for word, label in (("dog", "yes"), ("cat", "no")) for _ in range(15)]
    path = tmp_path / "train.tsv"
    path.write_text("\n".join(["text\tlabel", *lines]))
    return path


def tune(start, reviews, out, **options):
    settings = {"budget.steps": 3, "task.length": 24, "batch.sequences": 8}
    finetune("classification", start, [reviews], out, settings=settings, device="cpu", precision="float32", **options)


@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        ((), None),
        (PLOTS, "no plots (matplotlib) will be written; to get them: pip install 'unmask[plots]'"),
        (EVENTS, "no TensorBoard events (tensorboard) will be written; to get them: pip install 'unmask[plots]'"),
        (
            PLOTS + EVENTS,
            "no plots (matplotlib) and no TensorBoard events (tensorboard) will be written; "
            "to get them: pip install 'unmask[plots]'",
        ),
    ],
)
def test_what_is_missing_is_reported(hide, hidden, message):
    hide(*hidden)
    assert missing() == message


def test_tensorboard_is_imported_once_per_run(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr("unmask.training.runs.extras.event_writer", lambda: calls.append(1))
    with RunDirectory.create(tmp_path / "run", "", {}, {}) as run:
        for step in range(3):
            run.log({"kind": "train", "step": step, "loss": 1.0})
        assert len(run.read_metrics("train")) == 3
    assert calls == [1]


@pytest.mark.parametrize("hidden", [PLOTS, EVENTS, PLOTS + EVENTS], ids=["plots", "events", "both"])
def test_runs_write_everything_else(hide, hidden, corpus, recipe, reviews, tmp_path, capsys):
    hide(*hidden)
    first, second = tmp_path / "pretrained", tmp_path / "tuned"
    pretrain_corpus(recipe, corpus, first, machine=CPU)
    tune(first, reviews, second)
    assert capsys.readouterr().err.count("to get them: pip install 'unmask[plots]'") == 2  # once per run
    assert set(json.loads((second / "dev.json").read_text())["metrics"]) >= {"accuracy"}
    assert load_model(second).labels == ("no", "yes")
    assert load_model(first).heads.keys() >= {"masked_lm"}
    for run in (first, second):
        report = (run / "report.md").read_text()
        assert "3 steps" in report or "10 steps" in report
        assert (run / "metrics.jsonl").read_text().count('"heldout"') >= 2
        drawn = "matplotlib" not in hidden
        assert ("plots/training.png" in report) == drawn == (run / "plots" / "training.png").exists()
        assert (run / "events").exists() == ("tensorboard" not in hidden)
    assert ("plots/confusion.png" in (second / "report.md").read_text()) == drawn


def test_a_plot_that_cannot_be_drawn_is_only_reported(corpus, recipe, reviews, tmp_path, capsys, monkeypatch):
    first, second = tmp_path / "pretrained", tmp_path / "tuned"
    states = []

    def fail(drawing, path):
        run = path.parents[1]
        states.append({name for name in ("report.md", "model", "dev.json") if (run / name).exists()})
        raise ZeroDivisionError("no ink\nat all")

    monkeypatch.setattr(plots, "save", fail)
    pretrain_corpus(recipe, corpus, first, machine=CPU)
    tune(first, reviews, second)
    printed = capsys.readouterr().err
    line = "a plot could not be drawn; everything else is saved (ZeroDivisionError: no ink)\n"
    assert printed.count(line) == 3
    assert states == [{"report.md", "model"}, *[{"report.md", "model", "dev.json"}] * 2], "before it is drawn"
    for run in (first, second):
        assert "plots/" not in (run / "report.md").read_text()
        load_model(run)


def test_a_broken_tensorboard_counts_as_missing(monkeypatch):
    class Broken:
        def __getattr__(self, name):
            raise TypeError("Descriptors cannot be created directly")

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", Broken())
    assert extras.event_writer() is None
    assert "no TensorBoard events" in missing()


WITHOUT = """
import sys
for name in ("matplotlib", "tensorboard"):
    sys.modules[name] = None
from unmask.cli.main import main
text, out, *settings = sys.argv[1:]
given = ["pretrain", "bert-tiny", "--text", text, "--out", out, "--device", "cpu", "--set", "tokenizer.vocabulary=200"]
sys.exit(main([*given, *(word for name in settings for word in ("--set", name))]))
"""


def test_neither_is_imported_by_a_run(text_file, tmp_path):
    command = [sys.executable, "-c", WITHOUT, str(text_file), str(tmp_path / "run"), *SMALL]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("unmask[plots]") == 1
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()


def test_the_demonstration_ends_without_its_plot(hide, tmp_path, monkeypatch):
    from rich.console import Console

    from unmask.demo import demonstration as demo

    hide(*PLOTS)
    monkeypatch.setattr(demo, "load_model", str)
    monkeypatch.setattr(demo, "Predictor", lambda model: SimpleNamespace(predict=lambda texts: []))
    console = Console(file=io.StringIO())
    demo._conclude(tmp_path, {"random": {16: [50.0]}}, console)
    assert "50.0" in console.file.getvalue()
    assert [path.name for path in tmp_path.iterdir()] == ["sentences.txt"]
