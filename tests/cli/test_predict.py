"""`unmask predict` as a user types it, the errors that it reports before it loads a model, and other user errors."""

import json

import pytest

from unmask.cli.main import main

from .conftest import name_case, run_fork

MODEL = ("--model", "{line}/tuned")


def test_predict(line):
    model = ("predict", "--model", line / "tuned")
    output, errors = run_fork(*model, "dog near the sea", "cat", "--json")
    assert errors == ""
    predictions = [json.loads(text) for text in output.splitlines()]
    assert [list(one) for one in predictions] == [["text", "label", "scores"]] * 2
    assert [one["text"] for one in predictions] == ["dog near the sea", "cat"]
    for one in predictions:
        assert list(one["scores"]) == ["no", "yes"]
        assert sum(one["scores"].values()) == pytest.approx(1)
        assert one["label"] == max(one["scores"], key=one["scores"].get)
    # from a file, and from standard input, into a file
    output, _ = run_fork(*model, "--data", line / "train.tsv")
    assert len(output.splitlines()) == 30
    label, probability, text = output.splitlines()[0].split("\t")
    assert (label in ("no", "yes"), 0.5 <= float(probability) <= 1, text) == (True, True, "dog near the sea")
    out = line / "predictions.jsonl"
    options = ("--data", "-", "--format", "csv", "--columns", "text=1", "--out", out)
    output, errors = run_fork(*model, *options, stdin="1,dog near the sea\n2,cat\n")
    assert (output, errors) == ("", f"2 predictions: {out}\n")
    for one, other in zip(map(json.loads, out.read_text().splitlines()), predictions, strict=True):
        assert (one["text"], one["label"]) == (other["text"], other["label"])
        assert one["scores"] == pytest.approx(other["scores"], abs=1e-5)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("in.tsv", "in.tsv: --out is the same file as --data; name another file"),
        ("folder", "folder: --out is a directory; name a file"),
        ("nowhere/out.jsonl", "nowhere: there is no such directory; create it, or name another --out"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch, capsys, out, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "in.tsv").write_text("text\nthe dog\n")
    assert main(["predict", "--model", "none", "--data", "in.tsv", "--out", out]) == 2
    assert capsys.readouterr().err == f"unmask: {message}\n"
    assert (tmp_path / "in.tsv").read_text() == "text\nthe dog\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("predict", *MODEL), "give exactly one of: TEXT, --question with --passage, --data FILE"),
        (
            ("predict", *MODEL, "a", "--data", "{line}/train.tsv"),
            "give exactly one of: TEXT, --question with --passage, --data FILE",
        ),
        (("predict", *MODEL, "a", "--columns", "text=0"), "no effect without --data"),
        (("predict", *MODEL, "a", "--resume"), "--resume has no effect without --data and --out"),
        (
            ("predict", *MODEL, "a", "--out", "{here}/no/file"),
            "no: there is no such directory; create it, or name another --out",
        ),
        (
            ("predict", *MODEL, "a", "--out", "{here}/a.jsonl.gz"),
            "a.jsonl.gz: predictions are not written compressed; omit the suffix",
        ),
        (
            ("predict", *MODEL, "bad \udcff"),
            "character 5 of the text is a lone surrogate, not a valid character; pass UTF-8",
        ),
        (
            ("predict", "--model", "{line}/run", "a"),
            "this model was not fine-tuned for a task; fine-tune it: unmask finetune",
        ),
    ],
    ids=name_case,
)
def test_a_users_mistake_is_one_line_and_status_2(refused, arguments, message):
    refused(arguments, message)
