"""`unmask finetune` as a user types it: one run, several seeds, frozen encoders, and user errors."""

import json

import pytest

from unmask.cli.main import main

from .conftest import name_case, run_fork, sets


def test_finetune(main_line):
    errors = main_line[1]["finetune"].err
    assert "labels: no, yes" in errors
    assert "newly initialized, as " in errors, "the head is new, and that is reported"


def test_several_seeds(line, tmp_path):
    tune = ("finetune", "classification", "--model", line / "run", "--train", line / "train.tsv")
    options = ("--seeds", 2, *sets(["budget.steps=2"]), "--out", tmp_path / "runs")
    output, errors = run_fork(*tune, *options)
    assert output == ""
    assert errors.endswith((tmp_path / "runs/report.md").read_text() + "\n")
    assert "| **mean** | " in errors
    assert {path.name for path in (tmp_path / "runs").glob("seed-*")} == {"seed-0", "seed-1"}
    assert json.loads(run_fork("evaluate", "--model", tmp_path / "runs", "--data", line / "train.tsv", "--json").out)
    shown = run_fork("runs", "show", tmp_path / "runs").out
    assert shown.startswith(f"{tmp_path / 'runs'}: fine-tuning, 2 seeds\n\ndev data ")
    assert [text.split()[0] for text in shown.splitlines()[3:7]] == ["seed-0", "seed-1", "mean", "standard"]
    errors = run_fork("runs", "plot", tmp_path / "runs", "--out", tmp_path / "seeds.svg").err
    assert errors == f"plot: {tmp_path / 'seeds.svg'}\n"


@pytest.mark.parametrize("kind", ["", "linear", "average", "rnn"])
def test_frozen_from_the_command_to_an_answer(small, tmp_path, capsys, kind):
    given = ["--model", small / "model", "--train", small / "train.tsv", "--out", tmp_path / "run", "--device", "cpu"]
    chosen = ["--frozen", *(["--downstream", kind] if kind else []), "--set", "budget.steps=3"]
    assert main(["finetune", "classification", *map(str, given), *chosen, "--set", "task.length=16"]) == 0
    assert "samples: " in capsys.readouterr().err
    recipe = (tmp_path / "run/recipe.toml").read_text()
    assert "frozen = true" in recipe and f'kind = "{kind or "linear"}"' in recipe
    assert "Trained on frozen features" in (tmp_path / "run/model/README.md").read_text()
    assert main(["evaluate", "--model", str(tmp_path / "run"), "--data", str(small / "train.tsv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 30
    assert main(["predict", "--model", str(tmp_path / "run"), "dog near the sea", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] in ("yes", "no")


MODEL = ("--model", "{line}/tuned")
FILES = ("--train", "{line}/train.tsv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("finetune", "classification", "--model", "google/bert-x", *FILES, "--out", "{here}/r"),
            "hf download google/bert-x",
        ),
        (("finetune", "classification", "--model", "bert-tiny", *FILES, "--out", "{here}/r"), "write random:bert-tiny"),
        (
            ("finetune", "classification", "--model", "random:bert-tiny", *FILES, "--out", "{here}/r"),
            "pass --tokenizer",
        ),
        (
            ("finetune", "classification", "--model", "{here}", *FILES, "--out", "{here}/r"),
            "neither a run with a finished",
        ),
        (
            ("finetune", "classification", *MODEL, *FILES, "--tokenizer", "{line}/tokenizer", "--out", "{here}/r"),
            "has no effect",
        ),
        (
            ("finetune", "classification", *MODEL, "--train", "{here}/no.tsv", "--out", "{here}/r"),
            "no.tsv: cannot be read",
        ),
        (("finetune", "classification", *MODEL, "--train", "{line}/run", "--out", "{here}/r"), "directory, but none"),
        (("finetune", "classification", *MODEL, "--train", "{here}/empty.txt", "--out", "{here}/r"), "no examples"),
        (
            ("finetune", "classification", *MODEL, *FILES, "--columns", "label=stars", "--out", "{here}/r"),
            "train.tsv:1: no column named stars",
        ),
        (("finetune", "classification", *MODEL, *FILES, "--minutes", "0", "--out", "{here}/r"), "must be positive"),
    ],
    ids=name_case,
)
def test_a_users_mistake_is_one_line_and_status_2(refused, arguments, message):
    refused(arguments, message)
