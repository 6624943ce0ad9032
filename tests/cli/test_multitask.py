"""`unmask multitask` as a user types it."""

import json

import pytest

from unmask.cli.main import main

TASKS = """
[words]
task = "classification"
train = "{folder}/train.tsv"
settings = {{length = 16}}

[numbers]
task = "regression"
train = "{folder}/numbers.tsv"
settings = {{length = 12}}
"""


@pytest.fixture
def tasks(small, tmp_path):
    """A file of two tasks."""
    rows = [line.split("\t")[0] for line in (small / "train.tsv").read_text().splitlines()[1:]]
    numbers = ["text\tlabel", *(f"{text}\t{number}" for number, text in enumerate(rows))]
    (tmp_path / "numbers.tsv").write_text("\n".join(numbers))
    path = tmp_path / "tasks.toml"
    text = TASKS.format(folder=tmp_path).replace(f"{tmp_path}/train.tsv", str(small / "train.tsv"))
    path.write_text(text)
    return path


def test_from_the_command_to_an_answer(small, tasks, tmp_path, capsys):
    given = ["--model", small / "model", "--out", tmp_path / "run", "--device", "cpu", "--set", "budget.steps=3"]
    assert main(["multitask", str(tasks), *map(str, given), "--set", "temperature=inf"]) == 0
    errors = capsys.readouterr().err
    assert "words: 27 training examples, 3 evaluation examples, 50 % of the steps, a new head" in errors
    assert "of one task per step" in errors and "numbers: dev: pearson" in errors
    model = str(tmp_path / "run" / "model" / "words")
    assert main(["predict", "--model", model, "dog near the sea", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] in ("yes", "no")
    assert main(["runs", "show", str(tmp_path / "run")]) == 0
    assert "run: words, numbers, fine-tuning, finished" in capsys.readouterr().out
    assert main(["predict", "--model", str(tmp_path / "run"), "dog"]) == 2
    assert "a model for each of its tasks: words, numbers; name one of them" in capsys.readouterr().err


def test_a_mistake_is_one_line(small, tasks, tmp_path, capsys):
    tasks.write_text(tasks.read_text().replace("[numbers]", "[words.again]"))
    given = ["--model", small / "model", "--out", tmp_path / "run"]
    assert main(["multitask", str(tasks), *map(str, given)]) == 2
    assert (
        "fewer than two tasks; add a table, or train a single task by unmask finetune TASK" in capsys.readouterr().err
    )
