"""Trainers on a small corpus, and runs of the command line that are stopped and resumed."""

import filecmp
import math
import time

import msgspec
import pytest
import torch

from unmask.data.batches import sources
from unmask.recipes.recipe import Recipe, read_recipe
from unmask.support.settings import parse_overrides, write
from unmask.training import loop
from unmask.training.loop import Trainer
from unmask.training.machine import Machine
from unmask.training.restoring import MAY_CHANGE
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display
from unmask.workflows.pretraining.checks import build_curriculum
from unmask.workflows.pretraining.pretrain import pretrain_corpus
from unmask.workflows.pretraining.start import build_learner

from .. import forking
from .remembering import settings

CPU = Machine(torch.device("cpu"), "float32")
BF16 = Machine(torch.device("cpu"), "bf16")
STEPS = 90
"""Steps of the runs of `command`."""
STAGES = [{"share": 0.75, "layout": {"length": 16}}, {"share": 0.25}]


def changed(*settings, name="bert-tiny"):
    """Return a tiny recipe of three steps, with some settings changed."""
    inner = [] if name.startswith("gpt") else ["encoder.feed_forward=64"]  # GPT's is four times its width
    small = ["encoder.layers=1", "encoder.width=32", *inner, "encoder.positions=64"]
    small += ["layout.length=48", "batch.tokens=512", "optimizer.learning_rate=1e-3", "budget.steps=3"]
    return read_recipe(name, parse_overrides([*small, *settings]))


def metrics(run):
    """Return the lines of metrics.jsonl."""
    return [msgspec.json.decode(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]


@pytest.fixture(scope="session")
def finished(tmp_path_factory, corpus):
    """A run of three steps."""
    out = tmp_path_factory.mktemp("finished") / "run"
    pretrain_corpus(changed(), corpus, out, machine=CPU, quiet=True)
    return out


@pytest.fixture(scope="session")
def command(corpus, tmp_path_factory):
    """What follows `python` in the command line of a run, without --out."""
    path = tmp_path_factory.mktemp("recipe") / "recipe.toml"
    path.write_text(write(changed(f"budget.steps={STEPS}", "optimizer.bias_correction=false")))
    options = ["--corpus", str(corpus.directory), "--precision", "float32", "--quiet"]
    return ["-m", "unmask", "pretrain", str(path), *options]


def run_command(command, *options):
    """Run a command that must succeed."""
    done = forking.run([*command, *options])
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="session")
def unbroken(command, tmp_path_factory):
    """A run of `command` that was never stopped."""
    out = tmp_path_factory.mktemp("unbroken") / "run"
    run_command(command, "--out", str(out))
    return out


def stop(command, out, number, step):
    """Start a run, send it a signal once it has logged a step, and return its exit status and stderr."""
    process = forking.start([*command, "--out", str(out)])
    log, limit = out / "metrics.jsonl", time.monotonic() + 240
    while process.poll() is None and time.monotonic() < limit:
        if log.exists() and log.read_bytes().count(b'"train"') >= step:
            process.send_signal(number)
            break
        time.sleep(0.002)
    stderr = process.communicate(timeout=240)[1].decode()
    return process.returncode, stderr


def assert_same_run(run, unbroken):
    """Assert equal weights and losses, to the bit, and each step and evaluation exactly once."""
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        same = filecmp.cmp(run / "model" / name, unbroken / "model" / name, shallow=False)
        assert same, name  # not compared in the assertion, where pytest would print a difference of megabytes
    timing = ("seconds", "tokens_per_second", "flops_per_second")
    lines, expected = (
        [{key: value for key, value in line.items() if key not in timing} for line in metrics(path)]
        for path in (run, unbroken)
    )
    assert lines == expected


@pytest.fixture
def _frequent_checkpoints(monkeypatch):
    """Saves a checkpoint after each evaluation."""
    monkeypatch.setattr(loop, "SAVE_PAUSE", 0)


@pytest.fixture
def small(recipe):
    """The recipe with changes: `small(budget=dict(steps=3))`."""

    def change(**tables):
        table = msgspec.to_builtins(recipe)
        for name, values in tables.items():
            if isinstance(values, dict):
                table[name] = values if name == "budget" else table[name] | values
            else:
                table[name] = values
        return msgspec.convert(table, type(recipe))

    return change


@pytest.fixture
def trainer(corpus, tmp_path):
    """Makes a trainer on the corpus or on another source."""
    runs = []

    def make(recipe, *, source=None, heldout=False, machine=CPU, out="run", resume=False):
        learner, _ = build_learner(recipe, corpus.tokenizer.size, None)
        feed = build_curriculum(recipe, corpus.tokenizer, learner)
        while runs:
            runs.pop().close()
        path, text = tmp_path / out, write(recipe)
        run = RunDirectory.resume(path, text, {}, MAY_CHANGE) if resume else RunDirectory.create(path, text, {}, {})
        runs.append(run)
        return Trainer(
            learner,
            source or feed.source(corpus.train),
            prepare=feed.prepare() if source is None else list,
            heldout=feed.heldout(corpus.heldout, 1000) if heldout else [],
            settings=recipe,
            run=run,
            machine=machine,
            display=Display(quiet=True),
        )

    yield make
    while runs:
        runs.pop().close()


def weights(trainer):
    """Return copies of the weights."""
    return {name: value.clone() for name, value in trainer.learner.state_dict().items()}


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.equal(second[name]), name


def losses(run, kind="train"):
    """Return the losses and accuracies of each step."""
    return [{key: line[key] for key in line if "loss" in key or "accuracy" in key} for line in run.read_metrics(kind)]


def started(trainer, recipe, **settings):
    """Return a trainer whose run is started."""
    one = trainer(recipe, **settings)
    one.start()
    return one


@pytest.fixture
def staged(small, monkeypatch):
    """The recipe with two stages, on a corpus of several blocks."""
    monkeypatch.setattr(sources, "BLOCK_TOKENS", 1500)

    def change(kind="sentence_pairs", **tables):
        layout = {"length": 48, "kind": kind}
        if kind == "sentence_pairs":
            return small(layout=layout, stages=STAGES, **tables)
        table = msgspec.to_builtins(small(**tables))
        return msgspec.convert(table | {"layout": layout, "objective": {"masked_lm": {}}, "stages": STAGES}, Recipe)

    return change


def poison(trainer, steps):
    """Make the loss of chosen steps NaN."""
    forward = trainer.learner.forward

    def poisoned(batch):
        parts = forward(batch)
        if trainer.progress.step in steps:
            parts.update({name: part._replace(sum=part.sum * math.nan) for name, part in parts.items()})
        return parts

    trainer.learner.forward = poisoned


@pytest.fixture
def make_run(tmp_path):
    """Makes run directories for `trainer_of`."""
    opened = []

    def make(name="run"):
        opened.append(RunDirectory.create(tmp_path / name, write(settings(1)), {}, {}))
        return opened[-1]

    yield make
    while opened:
        opened.pop().close()
