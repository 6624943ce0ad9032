"""One fine-tuning run.

examples -> samples -> the training loop -> RUN/model, evaluated on data that was not used for any choice
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample, collate, split, total_length
from unmask.data.batches.sources import ExampleSource
from unmask.data.labelled.identities import identities
from unmask.inference.backend import DecisionBackend
from unmask.inference.evaluation.scoring import score_examples
from unmask.inference.predictor import Predictor
from unmask.model.model import Model, save_model
from unmask.nn.encoders.encoder import TOKEN_EMBEDDINGS, Encoder, WithTokenEmbeddings
from unmask.support import __version__
from unmask.support.durable import read_json, replace_file, replaced_directory
from unmask.support.errors import counted
from unmask.support.messages import argument
from unmask.support.model_card import Origin, model_card
from unmask.support.papers import papers_of
from unmask.support.settings import write
from unmask.tasks.task import Task
from unmask.tasks.tuning import describe_effect
from unmask.training.checkpoint import Progress
from unmask.training.loop import Trainer
from unmask.training.machine import Machine, choose_machine
from unmask.training.processes import Processes
from unmask.training.restoring import open_run
from unmask.training.runs.directory import FEATURES, FOLDS, RunDirectory
from unmask.training.runs.display import Display
from unmask.training.runs.plots import plot_confusion, plot_training
from unmask.training.runs.report import finetuning_report, metric_name
from unmask.training.settings import FEWEST_EVALUATIONS, FORWARDS_PER_STEP, TrainingSettings
from unmask.workflows.finetuning.announcements import (
    MIN_EVALUATED,
    announce,
    describe_overfitting,
    describe_plateau,
)
from unmask.workflows.finetuning.folds import changes, tuned_on_folds
from unmask.workflows.finetuning.frozen import Reindex, freeze, only_used_rows
from unmask.workflows.finetuning.job import FinetuningJob
from unmask.workflows.finetuning.prepare import Phase, Prepared, finished_model, prepare
from unmask.workflows.finetuning.probe import begin_with_probe
from unmask.workflows.pretraining.restarts import restarted, started

EVALUATION_SHARE = 0.05
"""Maximum cost of all evaluations during training, compared with that of the training."""
MAX_EVALUATED = 1000
"""Maximum number of held-out samples for evaluations during training; all are scored at the end."""
SCORES = "dev.json"
"""File name of the scores of a finished run."""
EVALUATION_TOKENS = 8192
"""Number of tokens in an evaluation batch."""


def run_job(
    job: FinetuningJob, out: str | Path, *, resume: bool = False, choosing: bool = False, features: Path | None = None
) -> Path:
    """Fine-tune as described in `unmask.workflows.finetuning.finetune`.

    Args:
        job: the task, the model, the files and the settings.
        out: the run directory.
        resume: whether to continue the run in `out`.
        choosing: whether the run serves a choice: it is then evaluated on a tenth of the training examples, and the dev
            examples are not used.
        features: folder of a frozen encoder's features, shared between runs; None: in the run directory until it ends.

    Returns:
        The directory of the model, RUN/model.

    Raises:
        UserError: files, model and run are inconsistent.
        UnmaskError: the run was interrupted; it is saved.
    """
    job.check()
    with Processes.launched() as processes:
        display = Display(quiet=job.quiet or not processes.is_main)
        machine = job.machine or choose_machine(processes=processes)
        resume = processes.broadcast(resume or (restarted() and started(Path(out))))
        ready = prepare(job, machine, display, choosing=choosing)
        held = 0 if job.files.dev or choosing or job.all_examples else len(ready.data.held)
        remark = f"held out: {counted(held, 'example')}; to train on all: {argument('all_examples')}"
        remarks = [remark] if held else []
        return run_prepared(ready, out, machine, processes, display, resume=resume, features=features, remarks=remarks)


def run_prepared(
    ready: Prepared,
    out: str | Path,
    machine: Machine,
    processes: Processes,
    display: Display,
    *,
    resume: bool = False,
    features: Path | None = None,
    remarks: Sequence[str] = (),
) -> Path:
    """Train what was prepared; see `run_job`.

    Args:
        ready: model, recipe and samples.
        out: the run directory.
        machine: device and precision.
        processes: the processes that train together.
        display: shows the progress.
        resume: whether to continue the run in `out`.
        features: folder of a frozen encoder's features.
        remarks: lines to print at the end.
    """
    recipe = write(ready.recipe)
    with processes, open_run(out, recipe, ready.inputs, machine, processes, resume=resume) as run:
        if resume and not run.changed and processes.broadcast(processes.is_main and _is_finished(run)):
            display.say(f"already finished: {run.model}")
            return run.model
        if processes.is_main:  # the scores are those of an earlier end of the run
            (run.path / SCORES).unlink(missing_ok=True)
        announce(ready, display)
        features = features or run.path / FEATURES
        tuned = _tuned_on_folds(ready, run, features, machine, processes, display) if ready.folds else None
        progress = _train(ready, run, features, machine, processes, display, resume=resume)
        if not processes.is_main:
            return run.model
        result = _finish(run, replace(ready, tuned=tuned), progress, machine, display)
    if compared := result.get("thresholds"):
        display.say(f"dev: {describe_effect(compared)}")
    if metrics := result["metrics"]:
        names = {name: metric_name(name, result.get("positive")) for name in metrics}
        display.say("dev: " + ", ".join(f"{names[name]} {value:.2f}" for name, value in metrics.items()))
    display.say(*result.get("notes", ()))
    display.warn(*result.get("warnings", ()))
    display.say(*remarks, f"model: {run.model}")
    return run.model


def _train(
    ready: Prepared,
    run: RunDirectory,
    features: Path,
    machine: Machine,
    processes: Processes,
    display: Display,
    *,
    resume: bool,
) -> Progress:
    """Train the learner that was prepared."""
    learner, recipe = ready.learner, ready.recipe
    parts: tuple[Sequence[Sample], Sequence[Sample]] = ready.train.samples, evaluated(ready)
    if recipe.frozen:  # the samples then refer to the features
        weights = ready.inputs["model"]
        parts, about = freeze(learner, ready.base, recipe, parts, features, weights, machine, processes, display)
        display.say(about)
    if recipe.probe and not resume:
        part, texts = recipe.task.part, identities(map(recipe.task.texts, ready.split.train))
        begun = begin_with_probe(
            learner, part, parts[0], texts, machine, lambda sample: learner.prepare(sample, {part})
        )
        display.say(begun)
    phases = ready.phases or (Phase(1.0, tuple(learner.parts)),)
    last = {recipe.task.part, *phases[-1].objectives}  # the task is always evaluated
    bodies = [ready.base.encoder, *(() if ready.teacher is None else (ready.teacher.encoder,))]
    # the whole table is computed with where the encoder is frozen or decodes tokens
    whole = recipe.frozen or any(TOKEN_EMBEDDINGS in it.requires for it in recipe.objectives.values())
    with nullcontext(_same) if whole else reduced_embeddings(bodies, recipe, [recipe.task], *parts) as reindex:
        samples, held = parts
        watched = split([learner.prepare(reindex(sample), last) for sample in held], EVALUATION_TOKENS) if held else []
        stages = [(phase.share, " and ".join(phase.objectives)) for phase in phases]
        trainer = Trainer(
            learner,
            ExampleSource(samples, seed=recipe.seed, stages=stages),
            prepare=lambda part: [learner.prepare(reindex(one), phases[one.stage].objectives) for one in part],
            heldout=[collate(part) for part in watched],
            evaluation_share=EVALUATION_SHARE,
            settings=recipe,
            run=run,
            machine=machine,
            display=display,
            processes=processes,
        )
        trainer.complete(resume=resume)
    return trainer.progress


def _tuned_on_folds(
    ready: Prepared, run: RunDirectory, features: Path, machine: Machine, processes: Processes, display: Display
) -> Task:
    """Return the task, tuned on predictions of models that are trained in the run's directory."""
    quiet = Display(quiet=True)

    def train(fold: Prepared, path: Path) -> None:
        resume = processes.broadcast(processes.is_main and started(path))
        with open_run(path, write(fold.recipe), fold.inputs, machine, processes, resume=resume) as part:
            _train(fold, part, features, machine, processes, quiet, resume=resume)

    exact = replace(machine, precision="float32")
    return tuned_on_folds(ready, run.path / FOLDS, train, exact, processes, display)


def _same(sample: Sample) -> Sample:
    return sample


def evaluated(ready: Prepared) -> Sequence[Sample]:
    """Return the held-out samples for evaluations during training, evenly spaced; for early stopping, all of them."""
    held = ready.held.samples
    if ready.stops_early or not held:
        return held
    affordable = EVALUATION_SHARE * FORWARDS_PER_STEP * _training_tokens(ready) / (FEWEST_EVALUATIONS + 1)
    most = min(MAX_EVALUATED, max(MIN_EVALUATED, len(held) * affordable / total_length(held)))
    return held[:: max(1, math.ceil(len(held) / most))]


def _training_tokens(ready: Prepared) -> float:
    """Return the number of tokens that the run reads; infinity if its budget is in minutes."""
    budget, batch, samples = ready.recipe.budget, ready.recipe.batch, ready.train.samples
    epoch = total_length(samples)
    if budget.epochs is not None:
        return budget.epochs * epoch
    if budget.steps is not None:
        return budget.steps * (batch.tokens or (batch.sequences or 0) * epoch / len(samples))
    return budget.tokens or math.inf


def reduced_embeddings(
    bodies: Sequence[Encoder],
    settings: TrainingSettings,
    tasks: Iterable[Task],
    train: Sequence[Sample],
    held: Sequence[Sample],
) -> AbstractContextManager[Reindex]:
    """Return a context in which only the token embeddings that occur in the samples are trained, if that is exact."""
    all_rows = settings.optimizer.reads_all_rows or any(task.head.adopts for task in tasks)  # heads that decode tokens
    if all_rows or any(TOKEN_EMBEDDINGS not in body.provides for body in bodies):
        return nullcontext(_same)
    return only_used_rows([cast(WithTokenEmbeddings, body).words for body in bodies], train, held)


def _finish(
    run: RunDirectory, ready: Prepared, progress: Progress, machine: Machine, display: Display
) -> dict[str, Any]:
    """Evaluate the finished model as `evaluate` does; write the model, the scores, the plots and the report."""
    recipe, data, trained_on = ready.recipe, ready.data, len(ready.split.train)
    model, result = score_trained(ready, machine, display)
    warnings = [
        *result.pop("warnings", ()),
        describe_overfitting(run.read_metrics("heldout"), len(ready.held.samples), recipe.budget),
    ]
    if not (ready.reuses_head or recipe.probe or recipe.task.head.weightless):
        name = f"{recipe.task.part}_loss"
        warnings.append(describe_plateau([line[name] for line in run.read_metrics("train") if name in line]))
    if told := [warning for warning in warnings if warning]:
        result["warnings"] = told
    with replaced_directory(run.model) as aside:
        save_trained(aside, ready, model, result)
    shutil.rmtree(run.plots, ignore_errors=True)  # plots of an earlier end of the run
    for folder in (FEATURES, FOLDS):
        shutil.rmtree(run.path / folder, ignore_errors=True)
    replace_file(run.path / SCORES, msgspec.json.format(msgspec.json.encode(result)))
    if "confusion" in result:
        plot_confusion(model.labels, np.array(result["confusion"]), run.plots / "confusion.svg")
    plot_training(run)
    run.report(finetuning_report(run, recipe.task.card, data.labels, progress, trained_on, result))
    return result


def score_trained(ready: Prepared, machine: Machine, display: Display) -> tuple[Model, dict[str, Any]]:
    """Return the model of a trained learner, with its task tuned, and its scores on the dev data, as `evaluate`."""
    data, exact = ready.data, replace(machine, precision="float32")
    task: Task = ready.recipe.task
    model = finished_model(ready.base, ready.learner, data.labels, task)
    if task.tunes:
        task = ready.tuned or _tune(task, model, ready.split.held, exact, display)
        model = replace(model, task=task)
    backend = DecisionBackend(model, machine, display) if task.decides and machine != exact else None
    predictor = Predictor(model, exact, display, backend=backend)
    return model, score_examples(predictor, data.held) if data.held else {"metrics": {}}


def save_trained(directory: Path, ready: Prepared, model: Model, result: Mapping[str, Any]) -> None:
    """Write the directory of a trained model, with its scores on its card."""
    data = ready.data
    labels = f" with the labels {', '.join(data.labels)}" if data.labels else ""
    about = f"{ready.how} with unmask {__version__} on {counted(len(ready.split.train), 'example')}{labels}."
    task: Task = ready.recipe.task
    body = model.encoder.settings
    origin = Origin(
        settings=ready.recipe.card,
        base=ready.base.as_base,
        library=task.card.library if body.library == "transformers" else body.library,
        pipeline=task.card.pipeline,
        tags=task.card.tags,
        train=_files(ready.split.train),
        held=_files(data.held),
        papers=papers_of(type(task), *model.parts),
    )
    save_model(directory, model, model_card(task.card.title, about, result["metrics"], origin))


def _files(examples: Sequence[Any]) -> list[str]:
    """Return the files that examples come from."""
    return sorted({file for example in examples if (file := getattr(example, "file", ""))})


def read_scores(run: Path) -> dict[str, Any]:
    """Return the scores of a finished run.

    Raises:
        UserError: the file is damaged.
    """
    return read_json(run / SCORES, dict[str, Any], f"remove it, and continue with {argument('resume', True)}")


def _is_finished(run: RunDirectory) -> bool:
    """Return whether a run has written all its files except plots; the scores are the last to be written."""
    return (run.path / SCORES).exists() and (run.model / "config.json").exists()


def _tune(task: Task, model: Model, aside: Sequence[Any], machine: Machine, display: Display) -> Task:
    """Return the task tuned by a model's predictions on training examples that were set aside."""
    tuned_task = task.tune(aside, Predictor(model, machine, display).run(aside))
    display.say(f"tuned on {counted(len(aside), 'training example')} set aside for it: {changes(task, tuned_task)}")
    return tuned_task
