"""`unmask suggest` and `unmask predict --labels` as a user types them, and user errors."""

import json

import pytest

from .conftest import name_case, run, run_fork

MODEL = ("--model", "{line}/tuned")


def test_suggest(line, tmp_path):
    (tmp_path / "texts.txt").write_text("dog near the sea\ncat near the sea\nthe house\nthe poem\nDog near the sea!\n")
    options = ("--data", tmp_path / "texts.txt", "--count", "2", "--out", tmp_path / "next.csv")
    output, errors = run_fork("suggest", "--model", line / "tuned", *options, "--labelled", line / "train.tsv")
    assert output == ""
    assert errors.splitlines()[-2:] == [
        "3 of 5 texts are the same as a previous or a labeled one",
        f"2 suggestions of 5 texts: {tmp_path / 'next.csv'}",
    ]
    header, *rows = (tmp_path / "next.csv").read_text().splitlines()
    assert header == "text,uncertainty,predicted"
    assert {row.split(",")[0] for row in rows} == {"the house", "the poem"}
    assert {row.split(",")[2] for row in rows} <= {"no", "yes"}


def test_labels_by_their_names(line):
    """The pretrained model of the main line has a masked-LM head."""
    model = ("predict", "--model", line / "run", "--labels", "dog, the sea", "the house is near it", "a cat")
    output = run(*model).out
    assert len(output.splitlines()) == 2
    assert {row.split("\t")[0] for row in output.splitlines()} <= {"dog", "the sea"}
    rows = [json.loads(row) for row in run(*model, "--template", "near {}", "--json").out.splitlines()]
    assert [list(row["scores"]) for row in rows] == [["dog", "the sea"]] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("suggest", *MODEL, "--data", "{here}/empty.txt", "--out", "{here}/a.csv"), "there are no texts"),
        (("suggest", *MODEL, "--data", "{here}/bad.tsv", "--out", "{here}/a.txt"), "use .jsonl, .csv, .tsv, .parquet"),
        (
            ("suggest", *MODEL, "--data", "{here}/bad.tsv", "--out", "{here}/a.csv", "--count", "0"),
            "--count 0: not a whole number from 1 to 5,000",
        ),
        (
            ("predict", *MODEL, "--labels", "a,b", "text"),
            "--labels needs a model of entailment, but the labels of this",
        ),
        (("predict", "--model", "{line}/run", "--labels", "a", "text"), "at least two names are needed"),
        (("predict", *MODEL, "--multi-label", "text"), "at least two names are needed"),
    ],
    ids=name_case,
)
def test_a_users_mistake_is_one_line_and_status_2(refused, arguments, message):
    refused(arguments, message)
