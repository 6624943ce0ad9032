"""Reports of runs say what their pictures cannot."""

import json
import math

import msgspec

from unmask.runs import plots
from unmask.runs.directory import RunDirectory
from unmask.runs.report import Remarks, finetuning_report, pretraining_report
from unmask.runs.summary import Reached
from unmask.tasks.classification import Classification


def test_numbers_in_the_picture_are_explained_where_the_font_lacks_a_label(make_run):
    run = RunDirectory(make_run())
    run.plots.mkdir()
    for name in ("confusion.png", "training.png"):
        (run.plots / name).touch()
    for labels, said in ((("good", "好"), "\n\n1: good  \n2: 好  \n"), (("no", "yes"), "\n")):
        text = finetuning_report(run, Classification(), labels, Reached(1, 1, 1.0), 3, {"accuracy": 50.0})
        assert f"![confusion](plots/confusion.png){said}\n![training]" in text


def test_what_is_no_number_is_reported_as_such(make_run):
    run = RunDirectory(make_run())
    lines = [
        {"kind": "heldout", "step": step, "loss": loss, "replaced_token_loss": loss, "replaced_token_guess": 0.9}
        for step, loss in ((0, 10.0), (9, math.nan))
    ]
    run.metrics.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))  # as a run writes them
    text = pretraining_report(run, "electra-mini", Reached(9, 9000, 1.0), Remarks())
    assert "| loss | 10.0000 | not finite |" in text
    assert "| replaced_token_loss | 10.0000 | not finite |" in text


def test_a_discriminator_is_seen_beside_what_always_saying_original_reaches(make_run, monkeypatch):
    run = RunDirectory(make_run())
    lines = [json.loads(text) for text in (run.path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line |= {
            "replaced_token_loss": 0.5,
            "replaced_token_accuracy": 0.8,
            "replaced_token_guess": 0.87 + line["step"] / 1000,
        }
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    pictures = []
    monkeypatch.setattr(plots, "save", lambda drawing, path: pictures.append(drawing))
    plots.plot_training(run)
    (panel,) = (panel for panel in pictures[0].axes if panel.get_title() == "replaced token accuracy")
    (curve,) = (line for line in panel.get_lines() if line.get_linestyle() == "--")
    assert curve.get_label() == "constant prediction: 0.878"
    assert curve.get_ydata().tolist() == [0.87, 0.872, 0.874, 0.876, 0.878]


def test_what_the_objectives_say_of_it_is_in_the_report(make_run):
    run = RunDirectory(make_run())
    (run.path / "metrics.jsonl").write_text(json.dumps({"kind": "heldout", "step": 0, "loss": 1.0}))
    said = Remarks(notes=["A note."], warnings=["Nothing was learnt."], usage=["unmask fill --model X"])
    text = pretraining_report(run, "gpt-mini", Reached(8, 8000, 1.0), said)
    for line in ("A note.", "**Nothing was learnt.**", "unmask fill --model X"):
        assert f"\n{line}\n" in text
    assert "A note." not in pretraining_report(run, "gpt-mini", Reached(8, 8000, 1.0), Remarks())
