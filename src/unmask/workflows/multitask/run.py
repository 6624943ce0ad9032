"""One run on several tasks: a `Mixture` -> the training loop -> RUN/model/TASK, a complete model for each task.

The encoder in these directories is the same, so each is read by everything that reads models, and `unmask serve` holds
the encoder once.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.batches.batch import Sample, collate, split
from unmask.data.batches.sources import MixedSource, mixing_rates
from unmask.model.directory import write_tasks
from unmask.support.durable import replace_file, replaced_directory
from unmask.support.messages import setting
from unmask.support.settings import write
from unmask.training.checkpoint import Progress
from unmask.training.loop import Trainer, open_run
from unmask.training.machine import Machine
from unmask.training.processes import Processes
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display
from unmask.training.runs.plots import plot_training, try_to_draw
from unmask.training.runs.report import TaskSummary, multitask_report
from unmask.workflows.finetuning.run_job import (
    EVALUATION_SHARE,
    EVALUATION_TOKENS,
    SCORES,
    describe_overfitting,
    evaluated,
    reduced_embeddings,
    save_trained,
    score_trained,
)
from unmask.workflows.multitask.mixture import Mixture

Scores = Mapping[str, Mapping[str, Any]]
"""The result of `score_examples` for each task."""


def run_mixture(mixture: Mixture, out: Path, machine: Machine, display: Display, *, resume: bool) -> Scores:
    """Train what was prepared; return the scores of each task on its dev data.

    Raises:
        UserError: files, model and run are inconsistent.
        UnmaskError: the run was interrupted; it is saved.
    """
    with open_run(out, write(mixture.recipe), mixture.inputs, machine, Processes(), resume=resume) as run:
        if resume and not run.changed and (run.path / SCORES).exists() and run.model.exists():
            display.say(f"already finished: {run.model}")
            scores: Scores = msgspec.json.decode((run.path / SCORES).read_bytes())
            return scores
        (run.path / SCORES).unlink(missing_ok=True)  # the scores are those of an earlier end of the run
        _announce(mixture, display)
        samples = [part.train.samples for part in mixture.parts.values()]
        held = [evaluated(part) for part in mixture.parts.values()]
        with reduced_embeddings([mixture.base.encoder], mixture.recipe, [*samples, *held]) as reindex:
            prepared, watched = (
                [
                    [mixture.learner.prepare(reindex(sample), {name}) for sample in part]
                    for name, part in zip(mixture.parts, parts, strict=True)
                ]
                for parts in (samples, held)
            )
            trainer, source = _trainer(mixture, prepared, watched, run, machine, display)
            trainer.complete(resume=resume)
        epochs = source.epochs_of_each(trainer.progress.cursor)
        return _finish(run, mixture, trainer.progress, epochs, machine, display)


def _trainer(
    mixture: Mixture,
    samples: Sequence[Sequence[Sample]],
    held: Sequence[Sequence[Sample]],
    run: RunDirectory,
    machine: Machine,
    display: Display,
) -> tuple[Trainer, MixedSource]:
    """Return the trainer on prepared samples of each task, and its source."""
    recipe = mixture.recipe
    source = MixedSource(samples, temperature=recipe.temperature, seed=recipe.seed)
    trainer = Trainer(
        mixture.learner,
        source,
        prepare=lambda sample: sample,
        heldout=[collate(batch) for part in held if part for batch in split(part, EVALUATION_TOKENS)],
        evaluation_share=EVALUATION_SHARE,
        settings=recipe,
        run=run,
        machine=machine,
        display=display,
    )
    return trainer, source


def _announce(mixture: Mixture, display: Display) -> None:
    """Print what was repaired, truncated or left out in the examples, and the main settings of the run."""
    recipe = mixture.recipe
    for name, part in mixture.parts.items():
        for note in (*part.train.notes, *(f"dev: {note}" for note in part.held.notes)):
            display.say(f"{name}: {note}")
    rates = mixing_rates([len(part.train.samples) for part in mixture.parts.values()], recipe.temperature)
    for (name, part), rate in zip(mixture.parts.items(), rates, strict=True):
        labels = f", labels: {', '.join(part.data.labels)}" if part.data.labels else ""
        head = "the head of the model" if part.reuses_head else "a new head"
        display.say(
            f"{name}: {len(part.split.train):,} training examples, {len(part.data.held):,} evaluation examples, "
            f"{100 * rate:.0f} % of the steps, {head}{labels}"
        )
    size = recipe.batch.sequences or recipe.batch.tokens
    unit = "sequences" if recipe.batch.sequences else "tokens"
    display.say(
        f"learning rate {recipe.optimizer.learning_rate:g}, {size} {unit} of one task per step, seed {recipe.seed}"
    )
    if mixture.base.created:
        display.say(f"newly initialized: {', '.join(mixture.base.created)}")


def _finish(
    run: RunDirectory,
    mixture: Mixture,
    progress: Progress,
    epochs: Sequence[float],
    machine: Machine,
    display: Display,
) -> Scores:
    """Evaluate the finished models as `evaluate` does; write them, the scores, the plot and the report."""
    scores, summaries = {}, {}
    with replaced_directory(run.model) as aside:
        for (name, part), read in zip(mixture.parts.items(), epochs, strict=True):
            model, scores[name] = score_trained(part, machine, display)
            save_trained(aside / name, part, model, scores[name])
            if warning := describe_training(run, name, mixture, read):
                scores[name]["warnings"] = [warning]
            summaries[name] = TaskSummary(part.recipe.task.title, len(part.split.train), read, scores[name])
        write_tasks(aside, mixture.parts)
    replace_file(run.path / SCORES, msgspec.json.format(msgspec.json.encode(scores)))
    shutil.rmtree(run.plots, ignore_errors=True)  # plots of an earlier end of the run
    try_to_draw(lambda: plot_training(run), display.say)
    run.report(multitask_report(run, summaries, progress))
    for name, result in scores.items():
        shown = ", ".join(f"{metric} {value:.2f}" for metric, value in result["metrics"].items())
        display.say(f"{name}: dev: {shown}")
        for warning in result.get("warnings", ()):
            display.say(f"{name}: {warning}")
    display.say(f"models: {run.model}")
    return scores


def describe_training(run: RunDirectory, name: str, mixture: Mixture, epochs: float) -> str:
    """Return a warning about the training of a task, which was read so often; "" if there is none."""
    if not epochs:
        return "no step had a batch of this task: its head is not trained"
    losses = [{**line, "loss": line[f"{name}_loss"]} for line in run.read_metrics("heldout") if f"{name}_loss" in line]
    recipe, samples = mixture.recipe, len(mixture.parts[name].held.samples)
    fewer = f" of it ({setting('temperature', 1)})" if recipe.temperature > 1 else ""
    return describe_overfitting(losses, samples, recipe.budget, f"fewer steps{fewer}")
