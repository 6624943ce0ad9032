"""Several seeds and a search for the learning rate: runs, the data that each choice uses, and resumption."""

import json
import shutil
import tomllib
from dataclasses import replace

import msgspec
import pytest

from unmask.model.model import Model, build_encoder, load_model, save_model
from unmask.support.errors import UserError
from unmask.support.settings import parse_overrides, write
from unmask.training.evaluate import NotFiniteError
from unmask.training.loop import Trainer
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display
from unmask.training.runs.usage import describe_usage
from unmask.workflows.finetuning import finetune as trials
from unmask.workflows.finetuning.finetune import run_trials
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel, LabelledFiles
from unmask.workflows.finetuning.prepare import prepare
from unmask.workflows.finetuning.run_job import run_job

from .conftest import CPU, job_of

SETTINGS = ["task.length=32", "budget.steps=2"]


@pytest.fixture
def job(rows, recipe_path, tokenizer_directory):
    start = InitialModel(f"random:{recipe_path}", tokenizer_directory)
    return FinetuningJob("classification", start, LabelledFiles([rows]), machine=CPU, quiet=True)


def with_dev(job, path):
    return replace(job, files=replace(job.files, dev=[path]))


def several(job, out, *, settings=(), **options):
    """Call `run_trials` with settings as given on the command line."""
    return run_trials(replace(job, settings=parse_overrides(settings)), out, **options)


@pytest.fixture
def recipe_path(tmp_path, recipe):
    path = tmp_path / "small.toml"
    path.write_text(write(recipe))
    return path


def scores(run):
    return json.loads((run / "dev.json").read_text())["metrics"]


def test_seeds_are_runs_and_the_best_is_the_model(job, tmp_path):
    out = tmp_path / "runs"
    several(job, out, seeds=3, settings=[*SETTINGS, "seed=5"])
    runs = [out / f"seed-{seed}" for seed in (5, 6, 7)]
    assert [tomllib.loads((run / "recipe.toml").read_text())["seed"] for run in runs] == [5, 6, 7]
    assert len({json.loads((run / "provenance.json").read_text())["inputs"]["dev"] for run in runs}) == 1
    best = max(runs, key=lambda run: scores(run)["accuracy"])
    assert load_model(out).fingerprint() == load_model(best).fingerprint()
    report = (out / "report.md").read_text()
    mean = sum(scores(run)["accuracy"] for run in runs) / 3
    assert f"| **mean** | {mean:.2f} |" in report
    assert "standard deviation" in report
    used = describe_usage([usage for run in runs for usage in RunDirectory(run).read_usage()])
    assert f"Used, with all seeds and learning rates: {used}." in report


def test_without_scores_nothing_can_be_chosen(job, tmp_path):
    with pytest.raises(UserError, match="all_examples leaves no scores"):
        run_trials(replace(job, all_examples=True), tmp_path / "runs", seeds=2)
    assert not (tmp_path / "runs").exists()


def test_the_rate_is_chosen_on_training_examples(job, rows, tmp_path):
    dev = tmp_path / "dev.tsv"
    dev.write_text(rows.read_text())
    several(with_dev(job, dev), tmp_path / "runs", seeds=1, search=True, settings=SETTINGS)
    found = json.loads((tmp_path / "runs/seeds.json").read_text())
    rates = {float(rate): score for rate, score in found["rates"].items()}
    rule = min(rates, key=lambda rate: abs(rate - sorted(rates)[1]))
    assert sorted(rates) == pytest.approx([rule / 2, rule, 2 * rule, 4 * rule], rel=0.01)
    used = tomllib.loads((tmp_path / "runs/seed-0/recipe.toml").read_text())["optimizer"]["learning_rate"]
    assert rates[used] == max(rates.values())
    dev_examples = [
        json.loads((tmp_path / "runs" / name / "dev.json").read_text())["examples"] for name in ("rate-x1", "seed-0")
    ]
    assert dev_examples[1] == 120
    assert dev_examples[0] == 12


def test_rates_are_compared_by_the_same_training(start, task, tmp_path, monkeypatch):
    """With 60 examples of each label, the rule for few labels would train the first run otherwise than the others."""
    recipes = []

    def run_job(job, run, *, choosing, **options):
        recipes.append(prepare(job, CPU, Display(quiet=True), choosing=choosing).recipe)

    monkeypatch.setattr(trials, "run_job", run_job)
    monkeypatch.setattr(trials, "_rate", lambda run: recipes[-1].optimizer.learning_rate)
    monkeypatch.setattr(trials, "_metrics", lambda run: {"accuracy": 50.0})
    assert len(trials.search_rates(job_of(start, task, frozen=None), tmp_path, resume=False)) == len(recipes) == 4
    assert len({write(msgspec.structs.replace(each, optimizer=recipes[0].optimizer)) for each in recipes}) == 1


def test_finished_seeds_are_not_run_again(job, tmp_path):
    out = tmp_path / "runs"
    several(job, out, seeds=1, settings=SETTINGS)
    with pytest.raises(UserError, match="not empty"):
        several(job, out, seeds=2, settings=SETTINGS)
    before = (out / "seed-0/dev.json").stat().st_mtime_ns
    several(job, out, seeds=2, settings=SETTINGS, resume=True)
    assert (out / "seed-0/dev.json").stat().st_mtime_ns == before
    assert (out / "seed-1/dev.json").exists()


def test_other_settings_or_data_do_not_resume(job, rows, tmp_path):
    out = tmp_path / "runs"
    several(job, out, seeds=1, settings=SETTINGS)
    with pytest.raises(UserError, match=r"task\.length was 32, now 16"):
        several(job, out, seeds=1, settings=["task.length=16", "budget.steps=2"], resume=True)
    rows.write_text(rows.read_text() + "another\tbrief\n")
    with pytest.raises(UserError, match=r"inputs\.train was"):
        several(job, out, seeds=2, settings=SETTINGS, resume=True)


@pytest.mark.parametrize("lost", ["dev.json", "model"])
def test_missing_outputs_are_written_again(job, tmp_path, lost):
    out = tmp_path / "runs"
    several(job, out, seeds=1, settings=SETTINGS)
    before = scores(out / "seed-0"), load_model(out / "seed-0").fingerprint()
    if lost == "model":
        shutil.rmtree(out / "seed-0/model")
    else:
        (out / "seed-0/dev.json").unlink()
    several(job, out, seeds=1, settings=SETTINGS, resume=True)
    assert (scores(out / "seed-0"), load_model(out / "seed-0").fingerprint()) == before


@pytest.mark.parametrize("search", [True, False])
def test_dev_files_are_checked_before_training(job, tmp_path, search):
    (tmp_path / "dev.tsv").write_text("text\tlabel\nthe dog\tmiddling\n")
    settings = SETTINGS if search else [*SETTINGS, "budget.patience=1"]
    with pytest.raises(UserError, match="unknown label 'middling'"):
        several(with_dev(job, tmp_path / "dev.tsv"), tmp_path / "runs", seeds=1, search=search, settings=settings)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 0}, "seeds=0: not a whole number of 1 or more"),
        ({"seeds": 2, "settings": ["seed=abc"]}, 'settings={"seed": "abc"}: not a whole number'),
        ({"seeds": 1, "search": True, "settings": ["optimizer.learning_rate=1e-4"]}, "search has no effect"),
    ],
)
def test_impossible_options_are_refused(job, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        several(job, tmp_path / "runs", **options)


def test_several_processes_are_refused(job, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UserError, match="torchrun"):
        several(job, tmp_path / "runs", seeds=2)


def test_an_interrupted_longer_run_is_not_mistaken_for_the_shorter_one(job, tmp_path, stopped_at):
    out = tmp_path / "runs"
    several(job, out, seeds=1, settings=SETTINGS)
    short = load_model(out / "seed-0").fingerprint()

    longer = {"seeds": 1, "settings": ["task.length=32", "budget.steps=6"], "resume": True}
    with stopped_at(4):
        several(job, out, **longer)
    several(job, out, **longer)
    assert load_model(out / "seed-0").fingerprint() != short
    assert RunDirectory(out / "seed-0").read_metrics("train")[-1]["step"] == 6


def test_a_seed_interrupted_before_its_first_checkpoint_starts_again(job, tmp_path, monkeypatch):
    out = tmp_path / "runs"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "complete", lambda self, resume: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            several(job, out, seeds=1, settings=SETTINGS)
    assert (out / "seed-0/recipe.toml").exists()
    several(job, out, seeds=1, settings=SETTINGS, resume=True)
    assert scores(out / "seed-0")


def test_a_search_is_not_repeated_for_a_larger_budget(job, tmp_path):
    out = tmp_path / "runs"
    several(job, out, seeds=1, search=True, settings=SETTINGS)
    before = json.loads((out / "seeds.json").read_text())["rates"]
    longer = ["task.length=32", "budget.steps=4"]
    with pytest.raises(UserError, match="search has no effect"):
        given = [*longer, "optimizer.learning_rate=1"]
        several(job, out, seeds=1, search=True, settings=given, resume=True)
    several(job, out, seeds=1, search=True, settings=longer, resume=True)
    assert json.loads((out / "seeds.json").read_text())["rates"] == before
    assert RunDirectory(out / "rate-x1").read_metrics("train")[-1]["step"] == 2
    assert RunDirectory(out / "seed-0").read_metrics("train")[-1]["step"] == 4
    assert "Selected: " in (out / "report.md").read_text()


def test_an_unfinished_run_cannot_be_loaded(job, tmp_path):
    out = tmp_path / "runs"
    several(job, out, seeds=1, settings=SETTINGS)
    shutil.rmtree(out / "model")
    shutil.rmtree(out / "seed-0/model")
    with pytest.raises(UserError, match="these runs are not finished"):
        load_model(out)
    with pytest.raises(UserError, match="this run is not finished"):
        load_model(out / "seed-0")


class Stopped(Exception):
    """Raised in place of a run."""


def test_a_search_trains_with_few_labels_too(job, tmp_path, recipe, tokenizer, monkeypatch):
    save_model(tmp_path / "start", Model(build_encoder(recipe.encoder, tokenizer.size), tokenizer), "")
    job = replace(job, start=InitialModel(tmp_path / "start"))
    assert prepare(job, CPU, Display(quiet=True), choosing=True).recipe.probe

    def stop(job, out, **options):
        raise Stopped(prepare(job, CPU, Display(quiet=True), choosing=True).recipe)

    monkeypatch.setattr(trials, "run_job", stop)
    with pytest.raises(Stopped) as stopped:
        run_trials(job, tmp_path / "runs", seeds=1, search=True)
    tried = stopped.value.args[0]
    assert (tried.probe, tried.downstream, tried.budget.epochs) == (False, None, 20)


def test_a_search_goes_on_without_rates_that_diverge(job, tmp_path, monkeypatch):
    complete = Trainer.complete

    def diverging(self, *, resume):
        complete(self, resume=resume)
        if self.run.path.name in failing:
            raise NotFiniteError("diverged")

    monkeypatch.setattr(Trainer, "complete", diverging)
    failing = {"rate-x1", "rate-x4"}
    several(job, tmp_path / "some", seeds=1, search=True, settings=SETTINGS)
    rates = json.loads((tmp_path / "some" / "seeds.json").read_text())["rates"]
    default = tomllib.loads((tmp_path / "some" / "rate-x1" / "recipe.toml").read_text())["optimizer"]["learning_rate"]
    assert sorted(map(float, rates)) == pytest.approx([default / 2, default * 2])
    failing = {f"rate-x{factor}" for factor in ("0.5", "1", "2", "4")}
    with pytest.raises(NotFiniteError):
        several(job, tmp_path / "none", seeds=1, search=True, settings=SETTINGS)


def test_a_run_that_diverges_ends_with_an_error(job, tmp_path):
    """Eight steps, fewer than the ten that stop a run."""
    settings = parse_overrides(["task.length=32", "budget.steps=8", "optimizer.learning_rate=1e30"])
    for out, all_examples in ((tmp_path / "run", False), (tmp_path / "all", True)):
        with pytest.raises(NotFiniteError, match="no model is written"):
            run_job(replace(job, settings=settings, all_examples=all_examples), out)
        assert (out / "metrics.jsonl").exists() and not (out / "model").exists()
