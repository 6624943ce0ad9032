"""`unmask evaluate` as a user types it: a classifier on examples, an encoder on text, and user errors."""

import json

import pytest

from .conftest import name_case, run_fork

SCORES = {"accuracy", "f1", "f1_macro", "balanced_accuracy", "matthews_correlation"}
MODEL = ("--model", "{line}/tuned")


def test_evaluate_a_classifier(line):
    output, errors = run_fork("evaluate", "--model", line / "tuned", "--data", line / "train.tsv", "--json")
    assert output.count("\n") == 1
    assert not errors or errors.endswith("predicted for all 30 examples: the model tells none of them apart\n")
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
    assert plain.startswith("pretraining: 1 example,")
    assert "masked_lm_loss" in plain


def test_suites_print_accuracies_and_bits(line, text_file, tmp_path):
    pair = {"sentence_good": "the dog sees a cat", "sentence_bad": "cat the a dog", "UID": "order", "field": "syntax"}
    (tmp_path / "pairs.jsonl").write_text("\n".join(json.dumps(pair | {"pairID": str(number)}) for number in range(3)))
    command = ("evaluate", "--model", line / "run", "--suite")
    output, errors = run_fork(*command, "blimp", "--data", tmp_path, "--limit", 2, "--pll", "word-l2r")
    first, total, field, paradigm = output.splitlines()
    assert first.startswith("blimp: 2 examples, ")
    assert total.split()[0] == "accuracy"
    assert (field.split()[:2], paradigm.split()[:2]) == (["syntax", "accuracy"], ["order", "accuracy"])
    assert paradigm.endswith("pairs 2")
    assert "PLL-word-l2r" in errors
    assert "at most the first 2 pairs of each paradigm" in errors
    output, _ = run_fork(*command, "bits", "--data", text_file, "--limit", 2, "--json")
    result = json.loads(output)
    assert result["characters"] > result["tokens"] > 0
    assert result["metrics"].keys() == {"bits_per_character", "bits_per_token"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate", *MODEL, "--data", "{here}/bad.tsv"), "bad.tsv:2: unknown label 'maybe'; the model knows no, yes"),
        (
            ("evaluate", *MODEL, "--data", "{line}/train.tsv", "--strict"),
            "no effect: the model is fine-tuned, so the data is labeled; omit it",
        ),
        (
            ("evaluate", "--model", "{line}/run", "--data", "{line}/train.tsv", "--columns", "text=0"),
            "--columns has no effect: the model is not fine-tuned, so the data is plain text; omit it",
        ),
        (
            ("evaluate", *MODEL, "--data", "{here}/bad.tsv", "--pll", "original"),
            "--pll has no effect without --suite; omit it",
        ),
        (("evaluate", *MODEL, "--data", "{here}/bad.tsv", "--suite", "blimp"), "no head of a language model"),
        (("evaluate", *MODEL, "--data", "{here}/bad.tsv", "--format", "conll"), "--format conll has no columns of"),
    ],
    ids=name_case,
)
def test_a_users_mistake_is_one_line_and_status_2(refused, arguments, message):
    refused(arguments, message)
