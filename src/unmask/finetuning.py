"""Fine-tune a model on labelled examples, or train a small model on its frozen features; one rule of defaults.

examples -> samples -> the training loop -> RUN/model, scored on data that served no choice
"""

from __future__ import annotations

import hashlib
import math
import shutil
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
from unmask.encoders.downstream import Downstream, DownstreamSettings, number_layers
from unmask.encoders.transformer import TransformerSettings
from unmask.errors import UserError, nearest
from unmask.evaluation.model import score_examples
from unmask.frozen import FEATURES, freeze
from unmask.model import Model, load_model, save_model
from unmask.objectives.learner import Learner
from unmask.recipe import FinetuningRecipe, convert, put, write
from unmask.runs.directory import RunDirectory
from unmask.runs.display import Display
from unmask.runs.plots import plot_confusion, plot_training
from unmask.runs.report import finetuning_report, model_card
from unmask.tasks import TASKS
from unmask.tasks.task import Task
from unmask.training.loop import Trainer, open_run
from unmask.training.machine import Machine, choose_machine
from unmask.training.processes import Processes
from unmask.version import __version__

EVALUATION_TOKENS = 8192
"""Tokens of a batch to evaluate on."""


def defaults(
    kind: str,
    settings: TransformerSettings,
    examples: int,
    *,
    pretrained: bool,
    frozen: bool = False,
    downstream: str | None = None,
) -> dict[str, object]:
    """Return the recipe that a fine-tuning starts from: a rule of the model's width and the number of examples.

    The smaller the model, the higher the learning rate; the fewer the examples, the smaller the batch and the more
    passes, so that few runs have fewer than `MIN_STEPS` steps. docs/fine-tuning.md shows on which splits of training
    data the rule was chosen. Of a frozen encoder only the small model learns, from weights drawn at random: at a higher
    rate and in more steps, which cost little (docs/features.md).
    """
    sequences = 16 if examples < FEW_EXAMPLES else 32
    epochs = min(MAX_EPOCHS, max(MIN_EPOCHS, math.ceil(MIN_STEPS * sequences / examples)))
    rate = (PRETRAINED_RATE if pretrained else RANDOM_RATE) * math.sqrt(768 / settings.width)
    if frozen:
        epochs = min(MAX_EPOCHS_FROZEN, max(MIN_EPOCHS_FROZEN, math.ceil(MIN_STEPS_FROZEN * sequences / examples)))
        rate = FROZEN_RATES[downstream or "linear"]
    chosen = {}
    if frozen or downstream:
        layers = [-1] if downstream in (None, "linear") else list(range(-min(LAYERS, settings.layers), 0))
        chosen = {"frozen": frozen, "downstream": {"kind": downstream or "linear", "layers": layers}}
    return {
        **chosen,
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
FROZEN_RATES = {"linear": 1e-2, "average": 1e-3, "rnn": 1e-3}
"""Peak learning rates on frozen features, whatever the width."""
MIN_STEPS_FROZEN = 2000
MIN_EPOCHS_FROZEN, MAX_EPOCHS_FROZEN = 10, 50
LAYERS = 4
"""So many of the last layers are read by `average` and `rnn`: the best in Devlin et al. 2019, table 7."""


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
    frozen: bool = False,
    downstream: str | None = None,
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
        frozen: leave the encoder as it is and compute its features once.
        downstream: a small model over its layers, "linear", "average" or "rnn"; none: the task's own head, which is
            what "linear" is.
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
    if downstream is not None and downstream not in FROZEN_RATES:
        raise UserError(f"unknown downstream model '{downstream}'", remedy=nearest(downstream, FROZEN_RATES))
    processes = Processes.launched()
    display = Display(quiet=quiet or not processes.leads)
    machine = machine or choose_machine()
    if idle := [text for text in settings if text.startswith(("frozen=", "downstream.kind="))]:
        raise UserError(f"--set {idle[0]} is an option of its own", remedy="pass --frozen or --downstream KIND")
    early = convert(put({}, [text for text in settings if text.startswith(("seed=", "dropout="))]), _Early, "--set")
    base = load_model(model, tokenizer=tokenizer, allow_pickle=allow_pickle, dropout=early.dropout, seed=early.seed)
    data = _read(TASKS[task](), train, dev, columns or {}, kind, base, early.seed)
    rule = defaults(
        task,
        base.encoder.settings,
        len(data.train),
        pretrained=not str(model).startswith("random:"),
        frozen=frozen,
        downstream=downstream,
    )
    recipe = _resolve(put(rule, settings), base, data)
    learner, kept = build_learner(base, data.labels, recipe)
    learner.to(machine.device)
    held = recipe.task.frame(base.tokenizer, data.held, data.labels, gold=True).samples
    samples = recipe.task.frame(base.tokenizer, data.train, data.labels, gold=True).samples
    inputs = {
        "model": base.fingerprint(),
        "train": _fingerprint(data.train),
        "dev": _fingerprint(data.held),
    }
    with open_run(out, write(recipe), inputs, machine, processes, resume=resume) as run, processes:
        display.say(_announce(model, base, recipe, data, kept))
        if recipe.frozen:
            (samples, held), about_them = freeze(
                learner, recipe.task.part, recipe.downstream, (samples, held), run, machine, processes
            )
            display.say(about_them)
        trainer = Trainer(
            learner,
            ExampleSource(samples, seed=recipe.seed),
            prepare=learner.prepare,
            heldout=[collate(piece) for piece in split([learner.prepare(it) for it in held], EVALUATION_TOKENS)],
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
        small = None
        if isinstance(learner.encoder, Downstream):
            small, heads["downstream"] = learner.encoder.chosen, learner.encoder.own_state()
        finished = Model(base.encoder, base.tokenizer, heads, data.labels, recipe.task, downstream=small)
        metrics = _score(finished, data.held, run, machine)
        how = "Trained on frozen features" if recipe.frozen else "Fine-tuned"
        about = f"{how} with unmask {__version__} on {len(data.train):,} examples{_to_tell(data.labels)}."
        save_model(run.model, finished, model_card(TITLES[task], about, metrics))
        plot_training(run)
        run.report(finetuning_report(run, TITLES[task], data.labels, trainer.progress, len(data.train), metrics))
        shutil.rmtree(run.path / FEATURES, ignore_errors=True)
    display.say("dev: " + ", ".join(f"{name} {value:.2f}" for name, value in metrics.items()))
    display.say(f"model: {run.model}")
    return run.model


TITLES = {"classification": "A text classifier", "regression": "A regression on texts"}
"""What a model is called in its card, by task."""


def build_learner(base: Model, labels: Sequence[str], recipe: FinetuningRecipe) -> tuple[Learner, bool]:
    """Return encoder and head, and whether the head is the model's own (it had one for the same labels).

    Raises:
        UserError: the downstream model and the task, or the encoder, do not go together.
    """
    torch.manual_seed(number(recipe.seed, "heads"))
    shape, chosen = base.encoder.settings, recipe.downstream
    if chosen is not None and chosen.plain(shape.layers):
        chosen = None
    body = base.encoder if chosen is None else Downstream(chosen, base.encoder, shape)
    head = recipe.task.build(body.settings, labels)
    if chosen is not None:
        _check_downstream(chosen, shape, recipe.task.part, head.at)
    kept = tuple(base.labels) == tuple(labels) and base.downstream == chosen and base.take(recipe.task.part, head)
    if kept and isinstance(body, Downstream):
        body.load_own(base.heads["downstream"])
    return Learner(body, {recipe.task.part: head}), kept


def _check_downstream(chosen: DownstreamSettings, shape: TransformerSettings, part: str, at: str) -> None:
    if chosen.kind == "average" and at != "summary":
        raise UserError(
            f"--downstream average is one vector a text, {part.replace('_', ' ')} needs one a token",
            remedy="take linear or rnn",
        )
    if chosen.kind == "linear" and at == "summary" and number_layers(chosen.layers, shape.layers) == (0,):
        raise UserError("layer 0 of [CLS] is the same for every text", remedy="take --downstream average or rnn")


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


def _resolve(table: dict[str, Any], base: Model, data: _Data) -> FinetuningRecipe:
    """Return the recipe: the rule with the user's settings, then what the training examples decide."""
    recipe = convert(table, FinetuningRecipe, "--set")
    if recipe.task.length > base.encoder.longest:
        raise UserError(f"length {recipe.task.length} exceeds the {base.encoder.longest} positions of the model")
    _refuse_idle(recipe, base.encoder.settings.layers)
    return msgspec.structs.replace(recipe, task=recipe.task.settle(data.train, data.labels))


def _refuse_idle(recipe: FinetuningRecipe, layers: int) -> None:
    """Refuse what has no effect with or without a frozen encoder."""
    if recipe.frozen and recipe.optimizer.layer_decay != 1:
        raise UserError("optimizer.layer_decay has no effect on a frozen encoder", remedy="leave it away")
    if recipe.frozen and recipe.batch.recompute:
        raise UserError("batch.recompute has no effect on a frozen encoder", remedy="leave it away")
    if not recipe.frozen and recipe.downstream is not None and recipe.downstream.plain(layers):
        raise UserError(
            "--downstream linear has no effect without --frozen: it is what fine-tuning does",
            remedy="pass --frozen, or leave it away",
        )


def _score(model: Model, held: Sequence[Any], run: RunDirectory, machine: Machine) -> dict[str, float]:
    """Score the finished model as `evaluate` would, and draw the confusion matrix."""
    result = score_examples(model, held, replace(machine, precision="float32"))
    if "confusion" in result:
        plot_confusion(model.labels, np.array(result["confusion"]), run.plots / "confusion.png")
    (run.path / "dev.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
    metrics: dict[str, float] = result["metrics"]
    return metrics


def _announce(source: str | Path, base: Model, recipe: FinetuningRecipe, data: _Data, kept: bool) -> str:
    title = recipe.task.part.replace("_", " ")
    own = f" (its own is for {', '.join(base.labels)})" if base.labels else ""
    small = "" if recipe.downstream is None else f" ({recipe.downstream.kind})"
    created = [*base.created, *(() if kept else (f"the {title} head{small}{own}",))]
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
