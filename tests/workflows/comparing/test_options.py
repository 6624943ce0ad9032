"""Options of a comparison that would have no effect are refused, and text that would decide nothing."""

import json
import re
import shlex

import msgspec
import pytest

import unmask
from unmask.cli.main import main
from unmask.support.errors import UnmaskError, UserError
from unmask.workflows.comparing import compute
from unmask.workflows.comparing.checks import check_comparison
from unmask.workflows.comparing.settings import Arm, read_budget, read_comparison

from .conftest import FILE, SETTINGS, as_toml

HERE = {"device": "cpu", "precision": "float32", "quiet": True}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("seeds", 5), ("search", True), ("race", True), ("outlook", True), ("documents", "line"), ("field", "body")),
        *(
            ("task", "regression"),
            ("columns", {"text": "a"}),
            ("format", "csv"),
            ("metric", "f1"),
            ("test", "test.tsv"),
        ),
    ],
)
def test_options_that_a_file_or_the_lack_of_a_task_makes_idle_are_refused(inputs, tmp_path, option, value):
    with pytest.raises(UserError, match=f"{option} has no effect: the file says what is compared; write it there"):
        unmask.compare(inputs / "pets.toml", out=tmp_path / "out", **{option: value}, **HERE)
    if option in ("task", "columns", "format", "metric", "test"):
        words = {"text": inputs / "text.txt", "budget": "2ktok", "arms": "bert-tiny,random"}
        with pytest.raises(UserError, match=f"{option} has no effect without train"):
            unmask.compare(out=tmp_path / "out", **words, **{option: value}, **HERE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dry_run": True, "at_most": ["5ms"]}, "at_most has no effect on a list of cells"),
        ({"slurm": True, "engine": "ray"}, "engine has no effect on a script for Slurm"),
        ({"first": True, "workers": 3, "slurm": True}, "workers, slurm have no effect on a first look"),
        ({"first": True, "at_most": ["5ms"]}, "at_most has no effect on a first look"),
    ],
)
def test_options_without_effect_on_each_other_are_refused(inputs, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        unmask.compare(inputs / "pets.toml", out=tmp_path / "out", **options, **HERE)
    assert not (tmp_path / "out").exists()


def test_errors_about_files_that_a_file_names_name_its_keys(tmp_path):
    """They named parameters, which are refused beside a file."""
    (tmp_path / "text.jsonl").write_text('{"body": "The text."}\n')
    (tmp_path / "text.toml").write_text('arms = ["bert-tiny", "electra-mini"]\nbudget = "9s"\ntext = ["text.jsonl"]\n')
    with pytest.raises(UserError, match=r"pass field = NAME .*in .*text\.toml"):
        unmask.compare(tmp_path / "text.toml", out=tmp_path / "out", **HERE)
    words = {"text": tmp_path / "text.jsonl", "arms": "bert-tiny,electra-mini", "budget": "9s"}
    with pytest.raises(UserError, match="pass field=NAME"):
        unmask.compare(out=tmp_path / "out", **words, **HERE)


def test_pickled_checkpoints_are_refused_before_anything_is_computed(inputs, tmp_path):
    """Their cells failed one by one, with an error that named a parameter of other commands."""
    (tmp_path / "pickled").mkdir()
    (tmp_path / "pickled" / "pytorch_model.bin").touch()
    words = {"train": inputs / "train.tsv", "arms": f"{tmp_path}/pickled,random:bert-tiny"}
    with pytest.raises(UserError, match=r"arm 'pickled': pickled .*unmask\.export.*allow_pickle=True"):
        unmask.compare(out=tmp_path / "out", **words, **HERE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"race": True}, "race has no effect with seeds=2: .*; pass seeds=3 or more"),
        ({"design": "single"}, "nothing is varied"),
        ({"arms": ["a/b", "a/c"], "budget": "", "text": [], "settings": {}, "field": "body"}, "without text"),
        ({"arms": ["a/b", "a/c"], "text": [], "settings": {}, "documents": "auto"}, "budget has no effect"),
        ({"arms": ["a/b", "a/c"], "text": [], "budget": "", "documents": "auto"}, "no arm has a recipe"),
        ({"arms": ["a/b", "a/c"], "settings": {}, "budget": "", "tasks": {}, "search": True}, "search has no effect"),
    ],
)
def test_settings_without_effect_are_refused(inputs, changes, message):
    comparison = msgspec.structs.replace(read_comparison(inputs / "pets.toml"), **{"task_settings": {}, **changes})
    with pytest.raises(UserError, match=message):
        check_comparison(comparison)


def test_a_test_set_that_cannot_be_held_out_is_asked_for_by_its_name(inputs, tmp_path):
    (tmp_path / "few.tsv").write_text("text\tlabel\na dog\tdog\na cat\tcat\n")
    words = {"text": inputs / "text.txt", "budget": "2ktok", "arms": "bert-tiny,random"}
    with pytest.raises(UserError, match="2 examples are too few to hold out a tenth; pass test=FILE"):
        unmask.compare(out=tmp_path / "out", train=tmp_path / "few.tsv", **words, **HERE)


def test_what_a_task_is_learned_from_is_checked_before_anything_is_trained(inputs, tmp_path):
    """A label of test examples alone, and too few examples to hold out a tenth for a search."""
    words = {"text": inputs / "text.txt", "budget": "2ktok", "arms": "bert-tiny,random", "out": tmp_path / "out"}
    (tmp_path / "test.tsv").write_text("text\tlabel\na dog\tdog\na mouse\tmouse\n")
    with pytest.raises(UserError, match=r"test\.tsv:3: no training example has the label 'mouse'"):
        unmask.compare(train=inputs / "train.tsv", test=tmp_path / "test.tsv", **words, **HERE)
    tagged = {kind: f"Anna B-{kind}\nsleeps O\n\n" * 20 for kind in ("PER", "LOC")}
    (tmp_path / "train.conll").write_text(tagged["PER"])
    (tmp_path / "test.conll").write_text(tagged["PER"] + tagged["LOC"])
    files = {"train": tmp_path / "train.conll", "test": tmp_path / "test.conll"}
    with pytest.raises(UserError, match=r"test\.conll.*: no training example has the label 'LOC'"):
        unmask.compare(task="token-classification", **files, **words, **HERE)
    (tmp_path / "few.tsv").write_text("text\tlabel\na dog\tdog\na cat\tcat\n")
    with pytest.raises(UserError, match="2 examples are too few to hold out a tenth; add training examples"):
        unmask.compare(train=tmp_path / "few.tsv", test=inputs / "test.tsv", search=True, **words, **HERE)
    asked = [{"id": f"{n}", "question": "who?", "answers": [], "is_impossible": True} for n in range(3)]
    told = {"id": "3", "question": "who?", "answers": [{"text": "Anna", "answer_start": 0}], "is_impossible": False}
    data = {"data": [{"title": "t", "paragraphs": [{"context": "Anna sleeps.", "qas": [*asked, told]}]}]}
    (tmp_path / "train.json").write_text(json.dumps(data))
    files = {"train": tmp_path / "train.json", "test": tmp_path / "train.json"}
    with pytest.raises(UserError, match="1 passage is too few to hold out a tenth; add training examples, or set what"):
        unmask.compare(task="question-answering", **files, **words, **HERE)
    assert not (tmp_path / "out").exists()


def test_scores_by_another_label_are_not_compared(inputs):
    arms = {"a": Arm(recipe="bert-tiny"), "b": Arm(recipe="bert-tiny", task_settings={"task.positive": "cat"})}
    comparison = msgspec.structs.replace(read_comparison(inputs / "pets.toml"), arms=arms)
    with pytest.raises(UserError, match=r"arm 'b': scores by another task\.positive cannot be compared; .*task 'pets'"):
        check_comparison(comparison)


@pytest.mark.parametrize("budget", ["1023.2tok", "999999tok", "1.23456e16flop", "0.5min", "7s", "12345678tok"])
def test_budgets_are_written_as_they_are_read_and_not_below(budget):
    amount = read_budget(budget)
    again = read_budget(amount.written)
    assert again.unit == amount.unit and amount.amount <= again.amount <= 1.01 * amount.amount


def test_the_budget_that_a_step_needs_is_named_as_it_is_written(inputs, tmp_path):
    words = {"text": inputs / "text.txt", "train": inputs / "train.tsv", "arms": "bert-tiny,random"}
    with pytest.raises(UserError, match=r"less than a step of 1,024 tokens; pass budget=.1024tok. or more"):
        unmask.compare(out=tmp_path / "out", budget="10tok", **words, **HERE)


def test_dry_runs_say_what_cells_take_and_cost(inputs, tmp_path, capsys):
    """On standard output, also of a quiet command: they are what was asked for."""
    options = ["--dry-run", "--price", "3600", "--device", "cpu", "--quiet"]
    main(["compare", str(inputs / "pets.toml"), "--out", str(tmp_path / "out"), *options])
    listed = capsys.readouterr().out
    (total,) = re.findall(r"cells, about (\d+) min (\d+) s with 1 at a time, at 3600.00 an hour ([\d.e+]+);", listed)
    assert float(total[2]) == pytest.approx(60 * int(total[0]) + int(total[1]), rel=0.05)
    assert re.search(r"\d MB +pretraining: bert, seed 0", listed) and re.search(r"take about \d+ MB", listed)


def test_the_script_for_slurm_has_all_options(inputs, tmp_path, capsys):
    """Cells of another precision are others: a script that left it out would compute them."""
    out = tmp_path / "with a space"
    options = ["--at-most", "5ms", "50MB", "--price", "0.2", "--precision", "float32", "--recompute"]
    main(["compare", str(inputs / "pets.toml"), "--out", str(out), "--slurm", "--dry-run", *options])
    written = capsys.readouterr()
    (line,) = [line for line in written.out.splitlines() if line.startswith("srun ")]
    words = shlex.split(line)[1:]
    assert words[:5] == ["unmask", "compare", str(out / "comparison.toml"), "--out", str(out)]
    assert sorted(words[5:]) == sorted(options)
    assert "pretraining: bert, seed 0" in written.err and (out / "comparison.toml").exists()


def test_without_held_out_text_nothing_is_trained(tmp_path, monkeypatch):
    """Nothing could be compared, as there are no labels either."""
    (tmp_path / "text.txt").write_text("the old dog sees a small cat near the river. " * 200)
    table = FILE.format(settings=as_toml(SETTINGS), task_settings="").partition("[arms.random]")[0]
    table = table.replace("[task_settings]", "") + '[arms.roberta]\nrecipe = "roberta-mini"\n'
    (tmp_path / "comparison.toml").write_text(table)
    monkeypatch.setitem(compute.COMPUTE, "pretraining", None)
    with pytest.raises(UnmaskError, match=r"every arm has failed: .*fewer than two documents are held out"):
        unmask.compare(tmp_path / "comparison.toml", out=tmp_path / "out", **HERE)
    assert "fewer than two documents are held out" in (tmp_path / "out" / "report.md").read_text()
    assert not [*tmp_path.glob("out/cells/*/run")]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"examples": 50}, r"examples=50: not a list of numbers; pass \[50\]"),
        ({"examples": [5.5]}, "examples=5.5: not a whole number of 1 or more"),
        ({"budget": 30}, "budget=30: not an amount with a unit"),
    ],
)
def test_values_of_other_types_are_refused(inputs, tmp_path, option, message):
    words = {"text": inputs / "text.txt", "train": inputs / "train.tsv", "arms": "bert-tiny,random", "budget": "2ktok"}
    with pytest.raises(UserError, match=message):
        unmask.compare(out=tmp_path / "out", **{**words, **option}, **HERE)


def test_results_are_written_to_a_directory_of_this_machine(inputs, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is a file, not a directory; choose another out"):
        unmask.compare(inputs / "pets.toml", out=tmp_path / "notes.txt", **HERE)
    with pytest.raises(UserError, match="files are written on this machine only"):
        unmask.compare(inputs / "pets.toml", out="s3://bucket/comparison", **HERE)
