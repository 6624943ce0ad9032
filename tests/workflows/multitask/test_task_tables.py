"""What cannot be the tasks of a run, and the tables in which they are written."""

import re

import pandas
import pytest

import unmask
from unmask.support.errors import UserError
from unmask.workflows.multitask.mixture import TaskTable, read_tables

from .conftest import HERE

ROWS = {"task": "classification", "train": "rows.tsv"}
TAGS = {"task": "token-classification", "train": "tags.conll"}
FILE = """
[mood]
task = "classification"
train = ["rows.tsv", "more.csv"]
dev = "dev.tsv"
columns = {text = "review"}
settings = {length = 64}

[names]
task = "token-classification"
train = "tags.conll"
"""


def test_a_file_has_a_table_for_each_task(tmp_path):
    (tmp_path / "tasks.toml").write_text(FILE)
    tables = read_tables(tmp_path / "tasks.toml")
    assert tables == read_tables(str(tmp_path / "tasks.toml"))
    assert list(tables) == ["mood", "names"]
    assert tables["mood"] == TaskTable(
        task="classification",
        train=["rows.tsv", "more.csv"],
        dev="dev.tsv",
        columns={"text": "review"},
        settings={"length": 64},
    )
    files = tables["mood"].files()
    assert (files.train, files.dev, files.columns) == (["rows.tsv", "more.csv"], ["dev.tsv"], {"text": "review"})


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({}, "fewer than two tasks"),
        ({"a": ROWS}, "fewer than two tasks.*unmask.finetune"),
        ({"a": ROWS, "b": 3}, "each task is a table"),
        ({"a": ROWS, "b c": TAGS}, "'b c' cannot be the name of a task"),
        ({"a": ROWS, "b.c": TAGS}, "'b.c' cannot be the name of a task"),
        ({"a": ROWS, "../b": TAGS}, "'../b' cannot be the name of a task"),
        ({"a": ROWS, "": TAGS}, "'' cannot be the name"),
        ({"a": ROWS, "1st": TAGS}, "'1st' cannot be the name"),
        ({"a": ROWS, "n" * 51: TAGS}, "cannot be the name"),
        ({"a": ROWS, 7: TAGS}, "'7' cannot be the name"),
        ({"a": ROWS, "values": TAGS}, "cannot be named 'values', as torch uses it"),
        ({"mood": ROWS, "Mood": TAGS}, "'mood' and 'Mood' differ only in capitals"),
        ({"a": ROWS, "b": {"task": "tagging", "train": "x"}}, "b: unknown task 'tagging'"),
        ({"a": ROWS, "b": {"task": "classification"}}, "b: the key `train` is missing"),
        ({"a": ROWS, "b": {**TAGS, "length": 3}}, "b: unknown key `length`"),
        ({"a": ROWS, "b": {**TAGS, "format": "doc"}}, "b: format"),
    ],
)
def test_unusable_tables_are_refused(tables, message):
    with pytest.raises(UserError, match=message):
        read_tables(tables)


def test_two_tasks_of_a_file_with_the_same_name_are_refused(tmp_path):
    path = tmp_path / "tasks.toml"
    path.write_text(FILE.replace("[names]", "[mood]"))
    with pytest.raises(UserError, match=f"{re.escape(str(path))}: not valid TOML: .*mood"):
        read_tables(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_tables(tmp_path / "nothing.toml")


def test_tasks_without_examples_and_impossible_settings_are_refused(tables, start, tmp_path):
    (tmp_path / "empty.tsv").write_text("text\tlabel\n")

    def refused(message, settings=None, **more):
        with pytest.raises(UserError, match=message):
            unmask.multitask({**tables, **more}, start, tmp_path / "out", settings=settings, **HERE)
        assert not (tmp_path / "out").exists()

    refused(r"empty\.tsv", size={"task": "regression", "train": tmp_path / "empty.tsv"})
    (tmp_path / "spans.jsonl").write_text('{"text": "the dog", "spans": [{"start": 4, "end": 6, "label": "X"}]}\n')
    exact = {"task": "token-classification", "train": tmp_path / "spans.jsonl", "settings": {"inexact": "refuse"}}
    refused(r"spans\.jsonl:1: the span 4–6 \(X\) 'do' begins or ends inside a word", names=exact)
    refused("size: length 500 exceeds the 64 positions", size={**tables["size"], "settings": {"length": 500}})
    refused("size: settings: unknown key `lenght`", size={**tables["size"], "settings": {"lenght": 20}})
    refused("the temperature must be positive", {"temperature": 0})
    refused("the temperature must be positive", {"temperature": -1.5})
    refused("tasks.size.length belongs to a task", {"tasks.size.length": 16})
    refused("task.length belongs to a task", {"task.length": 16})
    refused("unknown key `frozen`", {"frozen": True})
    refused("a budget must be positive", {"budget.epochs": 0})


def test_several_processes_are_refused(tables, start, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="torchrun"):
        unmask.multitask(tables, start, tmp_path / "out", **HERE)


def test_examples_may_be_in_memory(tables, start, tmp_path):
    frame = pandas.read_csv(tables["size"]["train"][0], sep="\t")
    words = [["dog", "river"], ["house", "cat"]] * 15
    memory = {
        "size": {"task": "regression", "train": frame, "settings": {"length": 24}},
        "names": {"task": "token-classification", "train": (words, [["B-X", "O"], ["O", "B-X"]] * 15)},
    }
    out = unmask.multitask(memory, start, tmp_path / "out", settings={"budget.steps": 2, "temperature": 1}, **HERE)
    assert sorted(path.name for path in out.iterdir()) == ["names", "size", "tasks.json"]


def test_errors_about_the_examples_of_a_file_name_its_keys(start, tmp_path):
    """They named --encoding and --columns, which `unmask multitask` does not have."""
    (tmp_path / "rows.tsv").write_bytes("text\tlabel\ncaf\xe9\ta\nthe\tb\n".encode("latin-1"))
    table = f'task = "classification"\ntrain = "{tmp_path}/rows.tsv"\n'
    (tmp_path / "tasks.toml").write_text(f"[a]\n{table}[b]\n{table}")
    with pytest.raises(UserError, match=r"pass encoding with .*\(in .*tasks\.toml\)"):
        unmask.multitask(tmp_path / "tasks.toml", start, tmp_path / "out", **HERE)
