"""Preparation of a run: resolution of settings, division of examples, and errors before a directory is created."""

from dataclasses import replace

import pytest

from unmask.data.labelled.table import ExampleTable
from unmask.model.model import load_model
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display
from unmask.workflows.finetuning.finetune import finetune
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel, LabelledFiles
from unmask.workflows.finetuning.prepare import prepare
from unmask.workflows.finetuning.run_job import run_job

from .conftest import CPU, tune

QUIET = Display(quiet=True)
AGAIN = {"seed": 3, "budget.steps": 3, "task.length": 24, "optimizer.learning_rate": 0.001}


@pytest.fixture
def job(classifier, rows):
    """A job without early stopping, on 120 examples."""
    settings = parse_overrides(["task.length=32", "budget.steps=1"])
    return FinetuningJob(
        "classification", InitialModel(classifier), LabelledFiles([rows]), settings, machine=CPU, quiet=True
    )


def with_setting(job, text):
    return replace(job, settings={**job.settings, **parse_overrides([text])})


@pytest.mark.parametrize(
    ("options", "settings", "message"),
    [
        ({"downstream": "tree"}, [], "unknown downstream model 'tree'; known: average, difference, linear, rnn"),
        ({"downstream": "rnn"}, ["downstream.layers=[3]"], "there is no layer 3; this model has 0"),
        ({"downstream": "linear"}, ["downstream.layers=[0]"], r"layer 0 of \[CLS\] is the same for every text"),
        (
            {"downstream": "linear", "frozen": False},
            [],
            'downstream="linear" has no effect without frozen: it is the default',
        ),
        ({}, ["optimizer.layer_decay=0.9"], "optimizer.layer_decay has no effect on a frozen encoder; remove it"),
        ({}, ["batch.recompute=true"], "batch.recompute has no effect on a frozen encoder"),
        ({}, ["frozen=false"], 'settings={"frozen": False} is not allowed; pass frozen=True'),
        ({}, ["downstream.kind=rnn"], "pass frozen=True or downstream=KIND"),
        (
            {"downstream": "difference"},
            [],
            'compares two texts, but these examples are not pairs; use downstream="average"',
        ),
        ({"downstream": "average"}, ["downstream.width=3"], "width has no effect on kind"),
        ({"frozen": False}, ["downstream.width=3"], "without a downstream model; pass frozen=True or downstream=KIND"),
    ],
)
def test_settings_without_effect_are_refused(start, task, tmp_path, options, settings, message):
    with pytest.raises(UserError, match=message):
        tune(start, task, tmp_path / "run", *settings, **options)
    assert not (tmp_path / "run").exists()


def test_a_tenth_is_held_out_without_dev_files(job):
    ready = prepare(job, CPU, QUIET, choosing=False)
    assert not ready.stops_early
    assert ready.split is ready.data
    assert (len(ready.data.train), len(ready.data.held)) == (108, 12)
    assert (len(ready.train.samples), len(ready.held.samples)) == (108, 12)
    assert sorted(ready.inputs) == ["dev", "model", "train"]
    assert ready.inputs == prepare(with_setting(job, "seed=3"), CPU, QUIET, choosing=False).inputs


def test_early_stopping_sets_training_examples_aside(job):
    ready = prepare(with_setting(job, "budget.patience=2"), CPU, QUIET, choosing=False)
    assert ready.stops_early
    assert (len(ready.data.train), len(ready.data.held)) == (108, 12)
    assert (len(ready.split.train), len(ready.split.held)) == (97, 11)
    assert (len(ready.train.samples), len(ready.held.samples)) == (97, 11)
    assert ready.inputs == prepare(job, CPU, QUIET, choosing=False).inputs, "those of all examples"


def test_a_choice_does_not_use_the_dev_examples(job, rows, tmp_path):
    dev = tmp_path / "dev.tsv"
    dev.write_text("text\tlabel\nthe dog\tbrief\n")
    job = replace(job, files=replace(job.files, dev=[dev]))
    assert len(prepare(job, CPU, QUIET, choosing=False).held.samples) == 1
    ready = prepare(job, CPU, QUIET, choosing=True)
    assert (len(ready.train.samples), len(ready.held.samples)) == (108, 12)
    dev.write_text("text\tlabel\nthe dog\tmiddling\n")
    with pytest.raises(UserError, match="unknown label 'middling'"):
        prepare(job, CPU, QUIET, choosing=True)


def test_the_head_of_the_model_is_kept_for_the_same_labels(job, rows):
    ready = prepare(job, CPU, QUIET, choosing=False)
    assert (ready.reuses_head, ready.data.labels) == (True, ("long", "brief"))
    rows.write_text(rows.read_text().replace("brief", "short"))
    ready = prepare(job, CPU, QUIET, choosing=False)
    assert (ready.reuses_head, ready.data.labels) == (False, ("long", "short"))


def test_settings_override_the_rule_and_the_task_is_resolved(job):
    plain = prepare(job, CPU, QUIET, choosing=False).recipe
    assert (plain.batch.sequences, plain.budget.steps, plain.task.pairs) == (16, 1, False)
    made = prepare(with_setting(job, "batch.sequences=5"), CPU, QUIET, choosing=False)
    assert made.recipe.batch.sequences == 5
    assert prepare(with_setting(job, "dropout=0.25"), CPU, QUIET, choosing=False).base.encoder.settings.dropout == 0.25


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("task.length=65", "length 65 exceeds the 64 positions of the model"),
        (
            "objective.masked_lm.weight=1.0",
            "objective.masked_lm needs masked tokens, which neither this model nor labeled ex",
        ),
        ("dropout=1.5", "dropout must be a number < 1"),
        ("task.learning_rate=1", r"at `task`; did you mean 'optimizer\.learning_rate'"),
    ],
)
def test_settings_that_the_model_does_not_support_are_refused(job, tmp_path, setting, message):
    with pytest.raises(UserError, match=message):
        run_job(with_setting(job, setting), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_recipe_of_a_run_runs_again_exactly(classifier, rows, tmp_path):
    first = finetune(
        "classification",
        classifier,
        rows,
        tmp_path / "a",
        settings=AGAIN,
        device="cpu",
        precision="float32",
        quiet=True,
    )
    recipe = tmp_path / "a" / "recipe.toml"
    again = finetune(
        "classification", classifier, rows, tmp_path / "b", recipe=recipe, device="cpu", precision="float32", quiet=True
    )
    assert (tmp_path / "b" / "recipe.toml").read_text() == recipe.read_text()
    assert load_model(again).fingerprint() == load_model(first).fingerprint()
    with pytest.raises(UserError, match=r"recipe\.toml: this recipe is for classification; name one for regression"):
        finetune(
            "regression", classifier, rows, tmp_path / "c", recipe=recipe, device="cpu", precision="float32", quiet=True
        )
    with pytest.raises(UserError, match="recipe bert-tiny: this recipe is not one of fine-tuning"):
        finetune(
            "classification",
            classifier,
            rows,
            tmp_path / "c",
            recipe="bert-tiny",
            device="cpu",
            precision="float32",
            quiet=True,
        )
    with pytest.raises(UserError, match="frozen has no effect with recipe"):
        finetune(
            "classification",
            classifier,
            rows,
            tmp_path / "c",
            recipe=recipe,
            frozen=True,
            device="cpu",
            precision="float32",
        )


def test_as_few_examples_are_those_of_the_seed_of_the_recipe(job, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        'seed = 3\ntask = {kind = "classification", length = 24}\nbudget = {steps = 1}\nbatch = {sequences = 8}\n'
        'optimizer = {kind = "adamw", learning_rate = 0.001}\nschedule = {kind = "linear"}\n'
    )
    jobs = {seed: replace(job, examples=20, settings={**job.settings, "seed": seed}) for seed in (0, 3, 4)}
    jobs["recipe"] = replace(job, examples=20, recipe=recipe, settings={})
    jobs["both"] = replace(jobs["recipe"], settings={"seed": 4})
    chosen = {
        name: [row.line for row in prepare(of, CPU, QUIET, choosing=False).data.train] for name, of in jobs.items()
    }
    assert chosen["recipe"] == chosen[3] != chosen[0]
    assert chosen["both"] == chosen[4]


def test_labels_of_which_no_example_is_drawn_are_named(job, rows, tmp_path, capsys):
    path = tmp_path / "rare.tsv"
    path.write_text(rows.read_text() + "".join(f"a text {name}\trare {name}\n" for name in "abc"))
    data = prepare(replace(job, files=LabelledFiles([path]), examples=5), CPU, Display(), choosing=False).data
    absent = set(data.labels) - {row.values["label"] for row in data.train}
    assert len(absent) >= 2
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "drawn" in line)
    named = line.removeprefix("labels of which no example was drawn, so that they are not learned: ").split(", ")
    assert sorted(named) == sorted(f"'{label}'" for label in absent)
    prepare(replace(job, examples=20), CPU, Display(), choosing=False)
    assert "drawn" not in capsys.readouterr().err


def test_examples_in_memory_train_like_those_of_a_file_and_are_recorded(classifier, rows, tmp_path):
    lines = [line.split("\t") for line in rows.read_text().splitlines()[1:]]
    data = {"text": [line[0] for line in lines], "label": [line[1] for line in lines]}
    first = finetune(
        "classification",
        classifier,
        rows,
        tmp_path / "a",
        settings=AGAIN,
        device="cpu",
        precision="float32",
        quiet=True,
    )
    again = finetune(
        "classification",
        classifier,
        data,
        tmp_path / "b",
        settings=AGAIN,
        device="cpu",
        precision="float32",
        quiet=True,
    )
    assert load_model(again).fingerprint() == load_model(first).fingerprint()
    inputs = RunDirectory(tmp_path / "b").read_provenance().inputs
    assert inputs["memory"] == "train: <dict>, 120 rows"
    assert len(inputs["train"]) == 64
    assert "memory" not in RunDirectory(tmp_path / "a").read_provenance().inputs


@pytest.mark.parametrize("inexact", ["adapt", "refuse"])
def test_settings_of_how_examples_are_read_are_obeyed(classifier, inexact):
    """They were stored with the model, and obeyed when it was evaluated, but not in training."""
    table = ExampleTable(
        "<test>", {"text": ["the dog sees it"] * 12, "spans": [[{"start": 4, "end": 6, "label": "X"}]] * 12}
    )
    settings = {"task.inexact": inexact, "task.length": 32}
    job = FinetuningJob(
        "token-classification", InitialModel(classifier), LabelledFiles([table]), settings, machine=CPU, quiet=True
    )
    if inexact == "refuse":
        with pytest.raises(UserError, match=r"the span 4–6 \(X\) 'do' begins or ends inside a word of 'dog'"):
            prepare(job, CPU, QUIET, choosing=False)
    else:
        assert prepare(job, CPU, QUIET, choosing=False).data.train[0].tags == ("O", "B-X", "O", "O")
