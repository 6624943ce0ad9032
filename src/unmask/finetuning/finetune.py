"""Fine-tune a model on labelled examples: all parameters, one new layer, one documented rule of defaults.

examples -> samples -> the training loop -> RUN/model, scored on data that served no choice
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unmask.batches.batch import collate, split
from unmask.batches.sources import ExampleSource
from unmask.durable import replace_file
from unmask.evaluation.model import score_examples
from unmask.finetuning.frozen import FEATURES, freeze
from unmask.finetuning.job import Job, LabelledFiles, Start
from unmask.finetuning.learner import finished_model
from unmask.finetuning.prepare import Prepared, prepare
from unmask.inference.predictor import Predictor
from unmask.model import Model, save_model
from unmask.recipe import FinetuningRecipe, resolve_migrated
from unmask.runs.directory import RunDirectory
from unmask.runs.display import Display
from unmask.runs.earlier import Earlier
from unmask.runs.plots import plot_confusion, plot_training, try_to_draw
from unmask.runs.report import finetuning_report, model_card
from unmask.settings import Overrides, write
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
    settings: Overrides | None = None,
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
        dev: labelled files to score on, used for no choice; none: a tenth of `train`, the same one for all seeds.
        columns: our column names to theirs.
        kind: the files' format where the suffix does not tell.
        settings: over the defaults, for example `{"seed": 1, "budget.epochs": 5}`.
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
    start = Start(model, tokenizer, allow_pickle)
    files = LabelledFiles(as_paths(train), as_paths(dev), columns or {}, kind)
    job = Job(task, start, files, settings or {}, frozen, downstream, machine, quiet)
    return run_job(job, out, resume=resume)


def run_job(
    job: Job, out: str | Path, *, resume: bool = False, choosing: bool = False, features: Path | None = None
) -> Path:
    """Do what `finetune` describes.

    Args:
        job: what is asked for.
        out: the run directory.
        resume: go on where the run in `out` stands.
        choosing: the run serves a choice: score on a tenth of what is left to train on, and leave the dev examples
            alone.
        features: where those of a frozen encoder are kept for other runs; none: in the run, until it ends.

    Returns:
        The model's directory, RUN/model.

    Raises:
        UserError: files, model and run do not go together.
        UnmaskError: the run broke off; it is saved.
    """
    job.check()
    processes = Processes.launched()
    display = Display(quiet=job.quiet or not processes.is_main)
    machine = job.machine or choose_machine()
    ready = prepare(job, machine, display, choosing=choosing)
    recipe = write(ready.recipe)
    earlier = Earlier(partial(resolve_migrated, FinetuningRecipe), {"model": ready.base.former_fingerprint})
    with processes, open_run(out, recipe, ready.inputs, machine, processes, resume=resume, earlier=earlier) as run:
        if resume and not run.changed and _is_finished(run):
            display.say(f"finished before: {run.model}")
            return run.model
        if processes.is_main:  # the scores of an end that is no longer the end
            (run.path / SCORES).unlink(missing_ok=True)
        _announce(job.start.model, ready, display)
        trainer = _trainer(ready, run, features or run.path / FEATURES, machine, processes, display)
        trainer.complete(resume=resume)
        if not processes.is_main:
            return run.model
        metrics = _leave(run, ready, trainer.progress, replace(machine, precision="float32"), display)
    display.say("dev: " + ", ".join(f"{name} {value:.2f}" for name, value in metrics.items()))
    display.say(f"model: {run.model}")
    return run.model


def _trainer(
    ready: Prepared, run: RunDirectory, features: Path, machine: Machine, processes: Processes, display: Display
) -> Trainer:
    """Return what trains on the samples; a frozen encoder's features are computed before, unless they are there."""
    learner, recipe = ready.learner, ready.recipe
    samples, watched = ready.train.samples, ready.held.samples
    if not ready.stops_early:
        watched = watched[:: max(1, -(-len(watched) // WATCHED))]
    if recipe.frozen:
        both, weights = (samples, watched), ready.inputs["model"]
        both, about = freeze(learner, ready.base, recipe, both, features, weights, machine, processes, display)
        samples, watched = both
        display.say(about)
    return Trainer(
        learner,
        ExampleSource(samples, seed=recipe.seed),
        prepare=learner.prepare,
        heldout=[collate(some) for some in split([learner.prepare(it) for it in watched], EVALUATION_TOKENS)],
        settings=recipe,
        run=run,
        machine=machine,
        display=display,
        processes=processes,
    )


def _leave(
    run: RunDirectory, ready: Prepared, progress: Progress, machine: Machine, display: Display
) -> dict[str, float]:
    """Score the finished model as `evaluate` would, and write it, the scores, the plots and the report."""
    recipe, data, trained_on = ready.recipe, ready.data, len(ready.learnt.train)
    model = finished_model(ready.base, ready.learner, data.labels, recipe.task)
    if recipe.task.tunes:
        model = _tune(model, ready.learnt.held, machine, display)
    result = score_examples(model, data.held, machine, display)
    metrics: dict[str, float] = result["metrics"]
    how = "Trained on frozen features" if recipe.frozen else "Fine-tuned"
    to_tell = f" to tell {', '.join(data.labels)} apart" if data.labels else ""
    about = f"{how} with unmask {__version__} on {trained_on:,} examples{to_tell}."
    save_model(run.model, model, model_card(recipe.task.title, about, metrics))
    shutil.rmtree(run.plots, ignore_errors=True)  # of an end that is no longer the end
    run.report(finetuning_report(run, recipe.task, data.labels, progress, trained_on, metrics))
    shutil.rmtree(run.path / FEATURES, ignore_errors=True)
    replace_file(run.path / SCORES, msgspec.json.format(msgspec.json.encode(result)))
    if "confusion" in result:
        counts = np.array(result["confusion"])
        try_to_draw(lambda: plot_confusion(model.labels, counts, run.plots / "confusion.png"), display.say)
    try_to_draw(lambda: plot_training(run), display.say)
    run.report(finetuning_report(run, recipe.task, data.labels, progress, trained_on, metrics))  # with the pictures
    return metrics


def _is_finished(run: RunDirectory) -> bool:
    """Return whether a run has left all that it leaves, pictures aside; the scores are the last of it."""
    return (run.path / SCORES).exists() and (run.model / "config.json").exists()


def _tune(model: Model, aside: Sequence[Any], machine: Machine, display: Display) -> Model:
    """Return the model with its task tuned on training examples that it has not seen."""
    assert model.task is not None
    task = model.task.tune(aside, Predictor(model, machine, display).run(aside))
    before, after = msgspec.to_builtins(model.task), msgspec.to_builtins(task)
    found = ", ".join(f"{name} {value:.4g}" for name, value in after.items() if value != before[name])
    display.say(f"found on {len(aside):,} training examples set aside for it: {found}")
    return replace(model, task=task)


def _announce(source: str | Path, ready: Prepared, display: Display) -> None:
    """Tell what was fixed, cut or left out of the examples, and what is about to be done."""
    for note in (*ready.train.notes, *(f"dev: {note}" for note in ready.held.notes)):
        display.say(note)
    base, recipe, data = ready.base, ready.recipe, ready.data
    title = recipe.task.part.replace("_", " ")
    own = f" (its own is for {', '.join(base.labels)})" if base.labels else ""
    created = [*base.created, *(() if ready.kept else (f"the {title} head{own}",))]
    labels = f", labels: {', '.join(data.labels)}" if data.labels else ""
    display.say(
        f"{len(ready.learnt.train):,} examples to train on, {len(data.held):,} to score on{labels}\n"
        f"learning rate {recipe.optimizer.learning_rate:g}, {recipe.batch.sequences or recipe.batch.tokens} "
        f"{'sequences' if recipe.batch.sequences else 'tokens'} a step, seed {recipe.seed}\n"
        + (f"created, as {source} has it not: {', '.join(created)}" if created else f"all weights from {source}")
    )
