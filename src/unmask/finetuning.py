"""Fine-tune a model on labelled examples: all parameters, one new layer, one documented rule of defaults.

examples -> samples -> the training loop -> RUN/model, scored on data that served no choice
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch

from unmask.batches.batch import collate, split
from unmask.batches.chance import number
from unmask.batches.sources import ExampleSource
from unmask.encoders.transformer import TransformerSettings
from unmask.errors import UserError, nearest
from unmask.evaluation.model import score_examples
from unmask.model import Model, load_model, save_model
from unmask.objectives.learner import Learner
from unmask.recipe import FinetuningRecipe, convert, put, write
from unmask.runs.directory import RunDirectory
from unmask.runs.display import Display
from unmask.runs.plots import plot_confusion, plot_training
from unmask.runs.report import finetuning_report, model_card
from unmask.serving.pipeline import Pipeline
from unmask.tasks import TASKS
from unmask.tasks.task import Task
from unmask.training.loop import Trainer, open_run
from unmask.training.machine import Machine, choose_machine
from unmask.training.processes import Processes
from unmask.version import __version__

EVALUATION_TOKENS = 8192
"""Tokens of a batch to evaluate on."""


def defaults(kind: str, settings: TransformerSettings, examples: int, *, pretrained: bool) -> dict[str, object]:
    """Return the recipe that a fine-tuning starts from: a rule of the model's width and the number of examples.

    The smaller the model, the higher the learning rate; the fewer the examples, the smaller the batch and the more
    passes, so that few runs have fewer than `MIN_STEPS` steps. docs/fine-tuning.md shows on which splits of training
    data the rule was chosen.
    """
    sequences = 16 if examples < FEW_EXAMPLES else 32
    epochs = min(MAX_EPOCHS, max(MIN_EPOCHS, math.ceil(MIN_STEPS * sequences / examples)))
    rate = (PRETRAINED_RATE if pretrained else RANDOM_RATE) * math.sqrt(768 / settings.width)
    return {
        "task": {"kind": kind, "length": min(TASKS[kind]().length, settings.positions)},
        "batch": {"sequences": sequences},
        "optimizer": {"kind": "adamw", "learning_rate": float(f"{rate:.2g}")},
        "schedule": {"kind": "linear", "warmup": 0.1},
        "budget": {"epochs": float(epochs)},
    }


PRETRAINED_RATE = 5e-5
"""Peak learning rate at BERT-base's width, from pretrained weights."""
RANDOM_RATE = 1e-4
"""The same from random weights."""
FEW_EXAMPLES = 2000
MIN_STEPS = 400
MIN_EPOCHS, MAX_EPOCHS = 3, 20


def finetune(
    task: str,
    model: str | Path,
    train: Sequence[str | Path],
    out: str | Path,
    *,
    dev: Sequence[str | Path] = (),
    columns: Mapping[str, str] | None = None,
    kind: str | None = None,
    settings: Sequence[str] = (),
    tokenizer: str | Path | None = None,
    allow_pickle: bool = False,
    resume: bool = False,
    machine: Machine | None = None,
    quiet: bool = False,
) -> Path:
    """Fine-tune a model for a task and leave a run directory.

    Args:
        task: one of `unmask.tasks.TASKS`.
        model: MODEL: a run, a Hugging Face directory, or random:RECIPE with `tokenizer`.
        train: labelled files.
        out: the run directory.
        dev: labelled files to score on, used for no choice; none: a seeded tenth of `train`.
        columns: our column names to theirs.
        kind: the files' format where the suffix does not tell.
        settings: KEY=VALUE over the defaults.
        tokenizer: for random:RECIPE.
        allow_pickle: let `model` hold pickled weights.
        resume: go on where the run in `out` stands.
        machine: device and precision; None chooses.
        quiet: print nothing.

    Returns:
        The model's directory, RUN/model.

    Raises:
        UserError: files, model and run do not go together.
        UnmaskError: the run broke off; it is saved.
    """
    if task not in TASKS:
        raise UserError(f"unknown task '{task}'", remedy=nearest(task, TASKS))
    processes = Processes.launched()
    display = Display(quiet=quiet or not processes.leads)
    machine = machine or choose_machine()
    early = convert(put({}, [text for text in settings if text.startswith(("seed=", "dropout="))]), _Early, "--set")
    base = load_model(model, tokenizer=tokenizer, allow_pickle=allow_pickle, dropout=early.dropout, seed=early.seed)
    data = _read(TASKS[task](), train, dev, columns or {}, kind, base, early.seed)
    recipe = _resolve(task, base, data, settings, pretrained=not str(model).startswith("random:"))
    learner, kept = build_learner(base, data.labels, recipe)
    learner.to(machine.device)
    settled: Task = recipe.task
    examples, aside = settled.set_aside(data.train, recipe.seed)
    framed = settled.frame(base.tokenizer, examples, data.labels, gold=True)
    held = settled.frame(base.tokenizer, data.held, data.labels, gold=True)
    inputs = {
        "model": base.fingerprint(),
        "train": _fingerprint(data.train),
        "dev": _fingerprint(data.held),
    }
    with open_run(out, write(recipe), inputs, machine, processes, resume=resume) as run, processes:
        display.say(_announce(model, base, recipe, data, kept))
        for remark in (*framed.remarks, *(f"dev: {remark}" for remark in held.remarks)):
            display.say(remark)
        trainer = Trainer(
            learner,
            ExampleSource(framed.samples, seed=recipe.seed),
            prepare=learner.prepare,
            heldout=[
                collate(piece) for piece in split([learner.prepare(it) for it in held.samples], EVALUATION_TOKENS)
            ],
            settings=recipe,
            run=run,
            machine=machine,
            display=display,
            processes=processes,
        )
        trainer.complete(resume=resume)
        if not processes.leads:
            return run.model
        part = recipe.task.part
        heads = {part: learner.parts[part].state_dict()}
        finished = Model(base.encoder, base.tokenizer, heads, data.labels, recipe.task)
        if aside:
            finished = _tune(finished, aside, machine, display)
        metrics = _score(finished, data.held, run, machine)
        about = f"Fine-tuned with unmask {__version__} on {len(data.train):,} examples{_to_tell(data.labels)}."
        save_model(run.model, finished, model_card(TITLES[task], about, metrics))
        plot_training(run)
        run.report(
            finetuning_report(
                run, TITLES[task], data.labels, trainer.progress, len(data.train), metrics, USAGE.get(task, '"A text."')
            )
        )
    display.say("dev: " + ", ".join(f"{name} {value:.2f}" for name, value in metrics.items()))
    display.say(f"model: {run.model}")
    return run.model


TITLES = {
    "classification": "A text classifier",
    "regression": "A regression on texts",
    "question-answering": "Answers to questions about a passage",
}
"""What a model is called in its card, by task."""
USAGE = {"question-answering": '--question "A question?" --passage "A passage."'}
"""What `unmask predict` is asked, where that is no text."""


def build_learner(base: Model, labels: Sequence[str], recipe: FinetuningRecipe) -> tuple[Learner, bool]:
    """Return encoder and head, and whether the head is the model's own (it had one for the same labels)."""
    torch.manual_seed(number(recipe.seed, "heads"))
    head = recipe.task.build(base.encoder.settings, labels)
    kept = tuple(base.labels) == tuple(labels) and base.take(recipe.task.part, head)
    return Learner(base.encoder, {recipe.task.part: head}), kept


@dataclass(frozen=True)
class _Data:
    """Examples to train on and to score on, and the labels, where there are any."""

    train: list[Any]
    held: list[Any]
    labels: tuple[str, ...]


def _read(
    task: Task,
    train: Sequence[str | Path],
    dev: Sequence[str | Path],
    columns: Mapping[str, str],
    kind: str | None,
    base: Model,
    seed: int,
) -> _Data:
    """Read the files; where the labels are those of the model, they are in its order."""
    examples = task.read(train, columns=columns, kind=kind)
    labels = task.label_names(examples)
    if set(labels) == set(base.labels):
        labels = base.labels
    if dev:
        return _Data(examples, task.read(dev, columns=columns, kind=kind), labels)
    return _Data(*task.hold_out(examples, seed), labels)


class _Early(msgspec.Struct, frozen=True):
    """What is needed before the model is there, whose width and data decide the other defaults."""

    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None


def _resolve(task: str, base: Model, data: _Data, settings: Sequence[str], *, pretrained: bool) -> FinetuningRecipe:
    """Return the recipe: the rule, then the user's settings, then what the training examples decide."""
    table = put(defaults(task, base.encoder.settings, len(data.train), pretrained=pretrained), settings)
    recipe = convert(table, FinetuningRecipe, "--set")
    if recipe.task.length > base.encoder.longest:
        raise UserError(f"length {recipe.task.length} exceeds the {base.encoder.longest} positions of the model")
    return msgspec.structs.replace(recipe, task=recipe.task.settle(data.train, data.labels))


def _score(model: Model, held: Sequence[Any], run: RunDirectory, machine: Machine) -> dict[str, float]:
    """Score the finished model as `evaluate` would, and draw the confusion matrix."""
    result = score_examples(model, held, replace(machine, precision="float32"))
    if "confusion" in result:
        plot_confusion(model.labels, np.array(result["confusion"]), run.plots / "confusion.png")
    (run.path / "dev.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    metrics: dict[str, float] = result["metrics"]
    return metrics


def _tune(model: Model, aside: Sequence[Any], machine: Machine, display: Display) -> Model:
    """Return the model with its task tuned on training examples that were set aside."""
    assert model.task is not None
    predictions = Pipeline(model, replace(machine, precision="float32")).run(aside)
    task = model.task.tune(aside, predictions)
    before, after = msgspec.to_builtins(model.task), msgspec.to_builtins(task)
    found = ", ".join(f"{name} {value:.4g}" for name, value in after.items() if value != before[name])
    display.say(f"found on {len(aside):,} training examples set aside for it: {found}")
    return replace(model, task=task)


def _announce(source: str | Path, base: Model, recipe: FinetuningRecipe, data: _Data, kept: bool) -> str:
    title = recipe.task.part.replace("_", " ")
    own = f" (its own is for {', '.join(base.labels)})" if base.labels else ""
    created = [*base.created, *(() if kept else (f"the {title} head{own}",))]
    labels = f", labels: {', '.join(data.labels)}" if data.labels else ""
    return (
        f"{len(data.train):,} examples to train on, {len(data.held):,} to score on{labels}\n"
        f"learning rate {recipe.optimizer.learning_rate:g}, {recipe.batch.sequences or recipe.batch.tokens} "
        f"{'sequences' if recipe.batch.sequences else 'tokens'} a step, seed {recipe.seed}\n"
        + (f"created, as {source} has it not: {', '.join(created)}" if created else f"all weights from {source}")
    )


def _to_tell(labels: Sequence[str]) -> str:
    return f" to tell {', '.join(labels)} apart" if labels else ""


def _fingerprint(examples: Sequence[Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(examples)).hexdigest()
