"""`unmask evaluate` as a user types it: a classifier on examples, an encoder on text, and user errors."""

import json

import pytest

from .conftest import name_case, run_fork, run_process

SCORES = {"accuracy", "f1", "f1_macro", "balanced_accuracy", "matthews_correlation"}
MODEL = ("--model", "{line}/tuned")


def test_evaluate_a_classifier(line):
    output, errors = run_process("evaluate", "--model", line / "tuned", "--data", line / "train.tsv", "--json")
    assert (output.count("\n"), errors) == (1, "")
    result = json.loads(output)
    assert result.keys() >= {"task", "metrics", "intervals", "examples", "seconds"}
    assert (result["task"], result["examples"]) == ("classification", 30)
    assert result["metrics"].keys() == result["intervals"].keys() == SCORES
    assert result["metrics"]["accuracy"] == pytest.approx(50, abs=50)
    assert result["metrics"]["accuracy"] == 100 * sum(result["confusion"][i][i] for i in (0, 1)) / 30
    assert all(low <= result["metrics"][name] <= high for name, (low, high) in result["intervals"].items())


def test_evaluate_an_encoder_on_text(line, text_file):
    output, errors = run_fork("evaluate", "--model", line / "run", "--data", text_file, "--json")
    assert (output.count("\n"), errors) == (1, "")
    result = json.loads(output)
    assert result["task"] == "pretraining"
    objectives = {f"{name}_{kind}" for name in ("masked_lm", "next_sentence") for kind in ("loss", "accuracy")}
    assert result["metrics"].keys() == objectives | {"loss"}
    assert 0 <= result["metrics"]["masked_lm_accuracy"] <= 1
    assert 4 < result["metrics"]["masked_lm_loss"] < 6, "near the logarithm of the vocabulary: nats"
    plain, _ = run_fork("evaluate", "--model", line / "run", "--data", "-", stdin="One. Two.")
    assert plain.startswith("pretraining: 1 examples")
    assert "masked_lm_loss" in plain


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", *MODEL, "--data", "{here}/bad.tsv"), "bad.tsv:2: unknown label 'maybe'; the model knows no, yes"),
        (
            ("evaluate", *MODEL, "--data", "{line}/train.tsv", "--strict"),
            "no effect: the model is fine-tuned, so the data is labeled; omit them",
        ),
        (
            ("evaluate", "--model", "{line}/run", "--data", "{line}/train.tsv", "--columns", "text=0"),
            "--columns has no effect: the model is not fine-tuned, so the data is plain text; omit it",
        ),
        (("evaluate", *MODEL, "--data", "{here}/bad.tsv", "--format", "conll"), "--format conll has no columns of"),
    ],
    ids=name_case,
)
def test_a_users_mistake_is_one_line_and_status_2(refused, arguments, message):
    refused(arguments, message)
