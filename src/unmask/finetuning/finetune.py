"""Fine-tune a model on labelled examples: all parameters, one new layer, one documented rule of defaults.

examples -> samples -> the training loop -> RUN/model, scored on data that served no choice
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from unmask.batches.batch import collate, split
from unmask.batches.sources import ExampleSource
from unmask.durable import replace_file
from unmask.encoders.transformer import TransformerSettings
from unmask.errors import UserError, nearest
from unmask.evaluation.model import score_examples
from unmask.finetuning.examples import Examples, frame_examples, read_examples
from unmask.finetuning.frozen import FEATURES, freeze
from unmask.finetuning.learner import build_learner, finished_model
from unmask.finetuning.rule import FROZEN_RATES, defaults
from unmask.inference.predictor import Predictor
from unmask.model import Model, load_model, save_model
from unmask.recipe import FinetuningRecipe
from unmask.runs.directory import RunDirectory
from unmask.runs.display import Display
from unmask.runs.plots import plot_confusion, plot_training
from unmask.runs.report import finetuning_report, model_card
from unmask.settings import convert, put, write
from unmask.tasks import TASKS
from unmask.tasks.task import Task
from unmask.text.files import as_paths
from unmask.training.checkpoint import Progress
from unmask.training.loop import Trainer, open_run
from unmask.training.machine import Machine, choose_machine
from unmask.training.processes import Processes
from unmask.version import __version__

WATCHED = 1000
"""So many held-out samples at most are looked at along the way, evenly chosen; all are scored at the end. What decides
when a run ends early is looked at whole."""
SCORES = "dev.json"
"""The scores of a finished run."""
EVALUATION_TOKENS = 8192
"""Tokens of a batch to evaluate on."""


def finetune(
    task: str,
    model: str | Path,
    train: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    dev: str | Path | Sequence[str | Path] = (),
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
    choosing: bool = False,
    features: Path | None = None,
) -> Path:
    """Fine-tune a model for a task and leave a run directory.

    Args:
        task: one of `unmask.tasks.TASKS`.
        model: MODEL: a run, a Hugging Face directory, or random:RECIPE with `tokenizer`.
        train: labelled files.
        out: the run directory.
        dev: labelled files to score on, used for no choice; none: a tenth of `train`, the same one for all seeds.
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
        features: where those of a frozen encoder are kept for other runs; none: in the run, until it ends.
        choosing: the run serves a choice: score on a tenth of what is left to train on, and leave `dev` alone.

    Returns:
        The model's directory, RUN/model.

    Raises:
        UserError: files, model and run do not go together.
        UnmaskError: the run broke off; it is saved.
    """
    train, dev = as_paths(train), as_paths(dev)
    _check_options(task, downstream, settings, frozen=frozen)
    processes = Processes.launched()
    display = Display(quiet=quiet or not processes.leads)
    machine = machine or choose_machine()
    early = convert(put({}, [text for text in settings if text.startswith(("seed=", "dropout="))]), _Early, "--set")
    base = load_model(model, tokenizer=tokenizer, allow_pickle=allow_pickle, dropout=early.dropout, seed=early.seed)
    unsettled = TASKS[task]()
    data = read_examples(unsettled, train, dev, columns or {}, kind, base)
    for note in data.notes:
        display.say(note)
    dev_examples = data.held
    if choosing:
        data = data.inner(unsettled)
    rule = defaults(
        task,
        base.encoder.settings,
        len(data.train),
        pretrained=not str(model).startswith("random:"),
        frozen=frozen,
        downstream=downstream,
    )
    recipe = _resolve(put(rule, settings), base, data)
    settled: Task = recipe.task
    learner, kept = build_learner(base, data.labels, recipe)
    learner.to(machine.device)
    # what ends a run early, or finds a setting, is neither trained on nor reported
    stops_early = recipe.budget.patience is not None
    learnt = data.inner(settled) if stops_early or settled.tunes else data
    framed = frame_examples(settled, base, learnt.train, data.labels, "learnt from these examples")
    scored = (learnt if stops_early else data).held
    held = frame_examples(settled, base, scored, data.labels, "scored on the examples held out")
    if dev and (choosing or stops_early):  # they are scored at the end, or by another run: now is the time to refuse
        settled.frame(base.tokenizer, dev_examples, data.labels, gold=True)
    inputs = {"model": base.fingerprint(), **data.fingerprints()}
    with processes, open_run(out, write(recipe), inputs, machine, processes, resume=resume) as run:
        if resume and not run.changed and _is_finished(run):
            display.say(f"finished before: {run.model}")
            return run.model
        if processes.leads:  # the scores of an end that is no longer the end
            (run.path / SCORES).unlink(missing_ok=True)
        for note in (*framed.notes, *(f"dev: {note}" for note in held.notes)):
            display.say(note)
        display.say(_announce(model, base, recipe, data, len(learnt.train), kept))
        samples, watched = framed.samples, held.samples
        if not stops_early:
            watched = watched[:: max(1, -(-len(watched) // WATCHED))]
        if recipe.frozen:
            (samples, watched), about = freeze(
                learner,
                base,
                recipe,
                (samples, watched),
                features or run.path / FEATURES,
                inputs["model"],
                machine,
                processes,
                display,
            )
            display.say(about)
        trainer = Trainer(
            learner,
            ExampleSource(samples, seed=recipe.seed),
            prepare=learner.prepare,
            heldout=[collate(piece) for piece in split([learner.prepare(it) for it in watched], EVALUATION_TOKENS)],
            settings=recipe,
            run=run,
            machine=machine,
            display=display,
            processes=processes,
        )
        trainer.complete(resume=resume)
        if not processes.leads:
            return run.model
        finished = finished_model(base, learner, data.labels, settled)
        if settled.tunes:
            finished = _tune(finished, learnt.held, machine, display)
        metrics = _leave(run, finished, recipe, data, len(learnt.train), trainer.progress, machine, display)
    display.say("dev: " + ", ".join(f"{name} {value:.2f}" for name, value in metrics.items()))
    display.say(f"model: {run.model}")
    return run.model


def _check_options(task: str, downstream: str | None, settings: Sequence[str], *, frozen: bool) -> None:
    if task not in TASKS:
        raise UserError(f"unknown task '{task}'", remedy=nearest(task, TASKS))
    if downstream is not None and downstream not in FROZEN_RATES:
        raise UserError(f"unknown downstream model '{downstream}'", remedy=nearest(downstream, FROZEN_RATES))
    if downstream is None and any(text.startswith("downstream.") for text in settings) and not frozen:
        raise UserError("downstream.… is without a downstream model", remedy="pass --frozen or --downstream KIND")
    if idle := [text for text in settings if text.startswith(("frozen=", "downstream.kind="))]:
        raise UserError(f"--set {idle[0]} is an option of its own", remedy="pass --frozen or --downstream KIND")


class _Early(msgspec.Struct, frozen=True):
    """What is needed before the model is there, whose width and data decide the other defaults."""

    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    dropout: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None


def _resolve(table: dict[str, Any], base: Model, data: Examples) -> FinetuningRecipe:
    """Return the recipe: the rule with the user's settings, then what the training examples decide."""
    recipe = convert(table, FinetuningRecipe, "--set")
    if recipe.task.length > base.encoder.longest:
        raise UserError(f"length {recipe.task.length} exceeds the {base.encoder.longest} positions of the model")
    _refuse_idle(recipe, base.encoder.settings)
    return msgspec.structs.replace(recipe, task=recipe.task.settle(data.train, data.labels))


def _refuse_idle(recipe: FinetuningRecipe, shape: TransformerSettings) -> None:
    """Refuse what has no effect with or without a frozen encoder, and a language model over what sees both sides."""
    if recipe.lm_weight is not None and (recipe.frozen or recipe.downstream is not None):
        raise UserError("lm_weight goes with neither a frozen encoder nor a downstream model", remedy="leave it away")
    if recipe.lm_weight is not None and not shape.causal:
        raise UserError("lm_weight is for models that read from left to right", remedy="leave it away")
    if recipe.frozen and recipe.optimizer.layer_decay != 1:
        raise UserError("optimizer.layer_decay has no effect on a frozen encoder", remedy="leave it away")
    if recipe.frozen and recipe.reset is not None:
        raise UserError("reset has no effect on a frozen encoder: it would never learn", remedy="leave it away")
    if recipe.frozen and recipe.batch.recompute:
        raise UserError("batch.recompute has no effect on a frozen encoder", remedy="leave it away")
    if not recipe.frozen and recipe.downstream is not None and recipe.downstream.plain(shape.layers):
        raise UserError(
            "--downstream linear has no effect without --frozen: it is what fine-tuning does",
            remedy="pass --frozen, or leave it away",
        )


def _leave(
    run: RunDirectory,
    model: Model,
    recipe: FinetuningRecipe,
    data: Examples,
    trained_on: int,
    progress: Progress,
    machine: Machine,
    display: Display,
) -> dict[str, float]:
    """Score the finished model as `evaluate` would, and write it, the scores, the plots and the report."""
    result = score_examples(model, data.held, replace(machine, precision="float32"), display)
    metrics: dict[str, float] = result["metrics"]
    how = "Trained on frozen features" if recipe.frozen else "Fine-tuned"
    to_tell = f" to tell {', '.join(data.labels)} apart" if data.labels else ""
    about = f"{how} with unmask {__version__} on {trained_on:,} examples{to_tell}."
    save_model(run.model, model, model_card(recipe.task.title, about, metrics))
    if "confusion" in result:
        plot_confusion(model.labels, np.array(result["confusion"]), run.plots / "confusion.png")
    plot_training(run)
    run.report(finetuning_report(run, recipe.task, data.labels, progress, trained_on, metrics))
    shutil.rmtree(run.path / FEATURES, ignore_errors=True)
    replace_file(run.path / SCORES, msgspec.json.format(msgspec.json.encode(result)))
    return metrics


def _is_finished(run: RunDirectory) -> bool:
    """Say whether a run has left all that it leaves; the scores are the last of it."""
    return (run.path / SCORES).exists() and (run.model / "config.json").exists()


def _tune(model: Model, aside: Sequence[Any], machine: Machine, display: Display) -> Model:
    """Return the model with its task tuned on training examples that it has not seen."""
    assert model.task is not None
    task = model.task.tune(aside, Predictor(model, replace(machine, precision="float32"), display).run(aside))
    before, after = msgspec.to_builtins(model.task), msgspec.to_builtins(task)
    found = ", ".join(f"{name} {value:.4g}" for name, value in after.items() if value != before[name])
    display.say(f"found on {len(aside):,} training examples set aside for it: {found}")
    return replace(model, task=task)


def _announce(
    source: str | Path, base: Model, recipe: FinetuningRecipe, data: Examples, trained_on: int, kept: bool
) -> str:
    title = recipe.task.part.replace("_", " ")
    own = f" (its own is for {', '.join(base.labels)})" if base.labels else ""
    created = [*base.created, *(() if kept else (f"the {title} head{own}",))]
    labels = f", labels: {', '.join(data.labels)}" if data.labels else ""
    return (
        f"{trained_on:,} examples to train on, {len(data.held):,} to score on{labels}\n"
        f"learning rate {recipe.optimizer.learning_rate:g}, {recipe.batch.sequences or recipe.batch.tokens} "
        f"{'sequences' if recipe.batch.sequences else 'tokens'} a step, seed {recipe.seed}\n"
        + (f"created, as {source} has it not: {', '.join(created)}" if created else f"all weights from {source}")
    )
