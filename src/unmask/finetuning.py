"""Fine-tune a model on labelled examples: all parameters, one softmax layer, one documented rule of defaults.

rows -> samples -> the training loop -> RUN/model, scored on data that served no choice
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import torch

from unmask.batches.batch import Sample, collate, split
from unmask.batches.chance import generator, number
from unmask.batches.sources import ExampleSource
from unmask.encoders.transformer import TransformerSettings
from unmask.errors import UserError
from unmask.evaluation.classification import confusion, intervals, scores
from unmask.model import Model, load_model, save_model
from unmask.objectives.learner import Learner
from unmask.recipe import FinetuningRecipe, convert, put, write
from unmask.runs.directory import RunDirectory
from unmask.runs.display import Display
from unmask.runs.plots import plot_confusion, plot_training
from unmask.runs.report import finetuning_report, model_card
from unmask.serving.pipeline import Pipeline
from unmask.tasks import classification
from unmask.tasks.labelled_file import Row, read_rows
from unmask.training.loop import Trainer, open_run
from unmask.training.machine import Machine, choose_machine
from unmask.training.processes import Processes
from unmask.version import __version__

EVALUATION_TOKENS = 8192
"""Tokens of a batch to evaluate on."""
DEV_SHARE = 0.1
"""How much of the training examples is held out where no dev data is given."""


def defaults(settings: TransformerSettings, examples: int, *, pretrained: bool) -> dict[str, object]:
    """Return the recipe that a fine-tuning starts from: a rule of the model's width and the number of examples.

    The smaller the model, the higher the learning rate; the fewer the examples, the smaller the batch and the more
    passes, so that few runs have fewer than `MIN_STEPS` steps. docs/fine-tuning.md shows on which splits of training
    data the rule was chosen.
    """
    sequences = 16 if examples < FEW_EXAMPLES else 32
    epochs = min(MAX_EPOCHS, max(MIN_EPOCHS, math.ceil(MIN_STEPS * sequences / examples)))
    rate = (PRETRAINED_RATE if pretrained else RANDOM_RATE) * math.sqrt(768 / settings.width)
    return {
        "task": "classification",
        "length": min(128, settings.positions),
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
    """Fine-tune a classifier and leave a run directory.

    Args:
        model: MODEL: a run, a Hugging Face directory, or random:RECIPE with `tokenizer`.
        train: labelled files.
        out: the run directory.
        dev: labelled files to score on, used for no choice; none: a seeded, stratified tenth of `train`.
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
    processes = Processes.launched()
    display = Display(quiet=quiet or not processes.leads)
    machine = machine or choose_machine()
    early = convert(put({}, [text for text in settings if text.startswith(("seed=", "dropout="))]), _Early, "--set")
    base = load_model(model, tokenizer=tokenizer, allow_pickle=allow_pickle, dropout=early.dropout, seed=early.seed)
    rows, held, labels = _read(train, dev, columns or {}, kind, base.labels, early.seed)
    recipe = _resolve(base, len(rows), settings, pretrained=not str(model).startswith("random:"))
    learner, kept = build_learner(base, labels, recipe)
    learner.to(machine.device)
    held_samples = [learner.prepare(sample) for sample in _samples(base, held, labels, recipe.length)]
    inputs = {
        "model": base.fingerprint(),
        "train": _fingerprint(rows),
        "dev": _fingerprint(held),
    }
    with open_run(out, write(recipe), inputs, machine, processes, resume=resume) as run, processes:
        display.say(_announce(model, base, recipe, labels, len(rows), len(held), kept))
        trainer = Trainer(
            learner,
            ExampleSource(_samples(base, rows, labels, recipe.length), seed=recipe.seed),
            prepare=learner.prepare,
            heldout=[collate(piece) for piece in split(held_samples, EVALUATION_TOKENS)],
            settings=recipe,
            run=run,
            machine=machine,
            display=display,
            processes=processes,
        )
        trainer.complete(resume=resume)
        if not processes.leads:
            return run.model
        heads = {"classification": learner.parts["classification"].state_dict()}
        finished = Model(base.encoder, base.tokenizer, heads, labels, recipe.length)
        metrics = _score(finished, held, labels, run, machine)
        about = f"Fine-tuned with unmask {__version__} on {len(rows):,} examples to tell {', '.join(labels)} apart."
        save_model(run.model, finished, model_card("A text classifier", about, metrics))
        plot_training(run)
        run.report(finetuning_report(run, labels, trainer.progress, len(rows), metrics))
    display.say("dev: " + ", ".join(f"{name} {value:.2f}" for name, value in metrics.items()))
    display.say(f"model: {run.model}")
    return run.model


def build_learner(base: Model, labels: Sequence[str], recipe: FinetuningRecipe) -> tuple[Learner, bool]:
    """Return encoder and head, and whether the head is the model's own (it had one for the same labels)."""
    torch.manual_seed(number(recipe.seed, "heads"))
    head = classification.Classification(base.encoder.settings, len(labels))
    kept = tuple(base.labels) == tuple(labels) and base.take("classification", head)
    return Learner(base.encoder, {"classification": head}), kept


def _read(
    train: Sequence[str | Path],
    dev: Sequence[str | Path],
    columns: Mapping[str, str],
    kind: str | None,
    known: tuple[str, ...],
    seed: int,
) -> tuple[list[Row], list[Row], tuple[str, ...]]:
    """Return the rows to train on and to score on, and the labels; where these are the `known` ones, in their order."""
    rows = read_rows(train, columns=columns, wanted=classification.COLUMNS, kind=kind)
    labels = classification.label_names(rows)
    if set(labels) == set(known):
        labels = known
    if dev:
        return rows, read_rows(dev, columns=columns, wanted=classification.COLUMNS, kind=kind), labels
    return *hold_out(rows, labels, seed), labels


def hold_out(rows: Sequence[Row], labels: Sequence[str], seed: int) -> tuple[list[Row], list[Row]]:
    """Split a seeded tenth off, the same share of each label.

    Raises:
        UserError: too few examples.
    """
    chosen: set[int] = set()
    for place, label in enumerate(labels):
        numbers = [index for index, row in enumerate(rows) if row.values["label"] == label]
        order = generator(seed, "dev", place).permutation(len(numbers))
        chosen |= {numbers[index] for index in order[: round(DEV_SHARE * len(numbers))]}
    if not chosen:
        raise UserError(
            f"{len(rows)} examples are too few to hold a tenth out", file=rows[0].file, remedy="pass --dev FILE"
        )
    train = [row for index, row in enumerate(rows) if index not in chosen]
    return train, [row for index, row in enumerate(rows) if index in chosen]


class _Early(msgspec.Struct, frozen=True):
    """What is needed before the model is there, whose width and data decide the other defaults."""

    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None


def _resolve(base: Model, examples: int, settings: Sequence[str], *, pretrained: bool) -> FinetuningRecipe:
    """Return the recipe: the rule, then the user's settings."""
    table = put(defaults(base.encoder.settings, examples, pretrained=pretrained), settings)
    recipe = convert(table, FinetuningRecipe, "--set")
    if recipe.length > base.encoder.longest:
        raise UserError(f"length {recipe.length} exceeds the {base.encoder.longest} positions of the model")
    return recipe


def _samples(model: Model, rows: Sequence[Row], labels: Sequence[str], length: int) -> list[Sample]:
    texts = [row.values["text"] for row in rows]
    return classification.samples(model.tokenizer, texts, length, classification.gold_labels(rows, labels))


def _score(
    model: Model, held: Sequence[Row], labels: Sequence[str], run: RunDirectory, machine: Machine
) -> dict[str, float]:
    """Score the finished model as `evaluate` would, and draw the confusion matrix."""
    predictions = Pipeline(model, replace(machine, precision="float32")).predict([row.values["text"] for row in held])
    names = {label: index for index, label in enumerate(labels)}
    gold = np.array(classification.gold_labels(held, labels))
    counts = confusion(gold, np.array([names[prediction.label] for prediction in predictions]), len(labels))
    plot_confusion(labels, counts, run.plots / "confusion.png")
    metrics = {name: float(value) for name, value in scores(counts).items()}
    result = {"metrics": metrics, "intervals": intervals(counts), "labels": labels, "confusion": counts.tolist()}
    (run.path / "dev.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    return metrics


def _announce(
    source: str | Path, base: Model, recipe: FinetuningRecipe, labels: Sequence[str], train: int, dev: int, kept: bool
) -> str:
    head = "the classification head" + (f" (its own is for {', '.join(base.labels)})" if base.labels else "")
    created = [*base.created, *(() if kept else (head,))]
    return (
        f"{train:,} examples to train on, {dev:,} to score on, labels: {', '.join(labels)}\n"
        f"learning rate {recipe.optimizer.learning_rate:g}, {recipe.batch.sequences or recipe.batch.tokens} "
        f"{'sequences' if recipe.batch.sequences else 'tokens'} a step, seed {recipe.seed}\n"
        + (f"created, as {source} has it not: {', '.join(created)}" if created else f"all weights from {source}")
    )


def _fingerprint(rows: Sequence[Row]) -> str:
    return hashlib.sha256(msgspec.json.encode([dict(row.values) for row in rows])).hexdigest()
