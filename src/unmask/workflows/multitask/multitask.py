"""Fine-tuning of one encoder for several tasks, `unmask.multitask`, and what learning together is worth to each.

A `Mixture` -> the training loop -> RUN/model/TASK, a complete model for each task. The encoder in these directories is
the same, so each is read by everything that reads models, and `unmask serve` holds the encoder once.

RUN/alone/TASK is the run that `unmask.finetune` makes of a task by itself, of the same examples. Both models predict
the same dev examples, and the difference has the paired interval of `unmask.evaluate`. RUN/alone.json has the numbers,
RUN/report.md a table.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.batches.batch import collate, split
from unmask.data.batches.sources import MixedSource, mixing_rates
from unmask.inference.predictor import Predictor
from unmask.metrics.intervals import differences, measure_all
from unmask.model.directory import write_tasks
from unmask.model.model import load_model
from unmask.support.choices import Device, Precision
from unmask.support.durable import only_writer, replace_file, replaced_directory
from unmask.support.environment import rank_and_size
from unmask.support.errors import UserError, keys_of
from unmask.support.messages import setting
from unmask.support.settings import Overrides, check_overrides, write
from unmask.training.checkpoint import Progress
from unmask.training.loop import Trainer
from unmask.training.machine import Machine, choose_machine
from unmask.training.processes import Processes
from unmask.training.restoring import open_run
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display
from unmask.training.runs.plots import plot_training
from unmask.training.runs.report import TaskSummary, multitask_report, write_section
from unmask.workflows.finetuning.announcements import describe_overfitting
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel
from unmask.workflows.finetuning.run_job import (
    EVALUATION_SHARE,
    EVALUATION_TOKENS,
    SCORES,
    evaluated,
    reduced_embeddings,
    run_job,
    save_trained,
    score_trained,
)
from unmask.workflows.multitask.mixture import Mixture, TaskTables, prepare_mixture, read_tables
from unmask.workflows.pretraining.restarts import started

OF_THE_MIXTURE = ("budget.", "temperature")
"""Beginnings of settings that the runs of single tasks do not have."""
ALONE = "alone"
"""Folder of the runs of single tasks, and name of the file of the comparison."""
HEADING = "## Together and alone"


def multitask(
    tasks: TaskTables,
    model: str | Path,
    out: str | Path,
    *,
    alone: bool = False,
    tokenizer: str | Path | None = None,
    allow_pickle: bool = False,
    settings: Overrides | None = None,
    resume: bool = False,
    device: Device = "auto",
    precision: Precision = "auto",
    workers: int | None = None,
    deterministic: bool = False,
    quiet: bool = False,
) -> Path:
    """Fine-tune one encoder on several tasks at once, each with labeled examples and a head of its own.

    Args:
        tasks: file.toml with a table [NAME] for each task, whose keys are task, train and optionally dev, columns,
            format and encoding, as in `unmask.finetune`, and settings of the task, such as {length = 64}; in Python
            also a mapping of names to such tables, which may have examples in memory.
        model: run directory, Hugging Face model directory or name on the Hub, directory of AllenNLP's ELMo, or
            random:RECIPE, an untrained model.
        out: run directory to write; RUN/model/NAME is the model of a task.
        alone: then also train each task alone, and report whether it was helped by the others.
        tokenizer: directory of a tokenizer, or of a model or run that has one, or name of a model on the Hub; for
            random:RECIPE.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        settings: settings to change, for example temperature=1, which draws tasks by their numbers of examples (inf:
            all equally often), or budget.steps=1000.
        resume: continue the run from its last checkpoint.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32.
        workers: number of processes that prepare batches in advance, without effect on the results; by default 2 on a
            GPU, 0 on a CPU.
        deterministic: on a GPU, compute with kernels that give the same numbers each time, where torch has them; they
            are slower.
        quiet: print only results and errors.

    Returns:
        RUN/model, with a directory for each task.

    Raises:
        UserError: files, model and run are inconsistent.
        UnmaskError: the run was interrupted; it is saved.
    """
    settings = settings or {}
    check_overrides(settings)
    if rank_and_size()[1] > 1:
        raise UserError("several tasks do not train under torchrun", remedy="start a single process")
    tables = read_tables(tasks)
    machine, display = choose_machine(device, precision, workers, deterministic=deterministic), Display(quiet=quiet)
    start = InitialModel(model, tokenizer, allow_pickle)
    with keys_of(tasks, "train", "dev", "columns", "format", "encoding"):
        mixture = prepare_mixture(tables, start, settings, machine, display)
    run_mixture(mixture, Path(out), machine, display, resume=resume)
    if alone:
        common = {key: value for key, value in settings.items() if not key.startswith(OF_THE_MIXTURE)}
        jobs = {
            name: FinetuningJob(
                table.task,
                start,
                table.files(),
                {**common, **{f"task.{key}": value for key, value in table.settings.items()}},
                machine=machine,
                quiet=quiet,
            )
            for name, table in tables.items()
        }
        compare_with_alone(mixture, jobs, Path(out), machine, display, resume=resume)
    return Path(out) / "model"


def run_mixture(mixture: Mixture, out: Path, machine: Machine, display: Display, *, resume: bool) -> None:
    """Train what was prepared, and write the models, the scores of each task on its dev data, and the report.

    Raises:
        UserError: files, model and run are inconsistent.
        UnmaskError: the run was interrupted; it is saved.
    """
    with open_run(out, write(mixture.recipe), mixture.inputs, machine, Processes(), resume=resume) as run:
        if resume and not run.changed and (run.path / SCORES).exists() and run.model.exists():
            display.say(f"already finished: {run.model}")
            return
        (run.path / SCORES).unlink(missing_ok=True)  # the scores are those of an earlier end of the run
        _announce(mixture, display)
        recipe, learner, names = mixture.recipe, mixture.learner, list(mixture.parts)
        samples = [part.train.samples for part in mixture.parts.values()]
        held = [evaluated(part) for part in mixture.parts.values()]
        source = MixedSource(samples, temperature=recipe.temperature, seed=recipe.seed)  # keys begin with the task
        tasks = recipe.tasks.values()
        with reduced_embeddings([mixture.base.encoder], recipe, tasks, [*chain(*samples)], [*chain(*held)]) as reindex:
            watched = [
                [learner.prepare(reindex(sample), {name}) for sample in part]
                for name, part in zip(names, held, strict=True)
            ]
            trainer = Trainer(
                learner,
                source,
                prepare=lambda part: [learner.prepare(reindex(one), {names[one.key[0]]}) for one in part],
                heldout=[collate(batch) for part in watched if part for batch in split(part, EVALUATION_TOKENS)],
                evaluation_share=EVALUATION_SHARE,
                settings=recipe,
                run=run,
                machine=machine,
                display=display,
            )
            trainer.complete(resume=resume)
        epochs = source.epochs_of_each(trainer.progress.cursor)
        _finish(run, mixture, trainer.progress, epochs, machine, display)


def describe_training(run: RunDirectory, name: str, mixture: Mixture, epochs: float) -> str:
    """Return a warning about the training of a task, which was read so often; "" if there is none."""
    if not epochs:
        return "no step had a batch of this task: its head is not trained"
    losses = [{**line, "loss": line[f"{name}_loss"]} for line in run.read_metrics("heldout") if f"{name}_loss" in line]
    recipe, samples = mixture.recipe, len(mixture.parts[name].held.samples)
    fewer = f" of it ({setting('temperature', 1)})" if recipe.temperature > 1 else ""
    return describe_overfitting(losses, samples, recipe.budget, f"fewer steps{fewer}")


@dataclass(frozen=True)
class AloneComparison:
    """A task learned together with others, and alone, on the same dev examples.

    Attributes:
        metric: what is compared.
        together, alone: its two values.
        interval: 95 % interval of their difference, together minus alone, by a paired bootstrap.
        p: the p-value of the difference.
    """

    metric: str
    together: float
    alone: float
    interval: tuple[float, float]
    p: float

    @property
    def verdict(self) -> str:
        """What it amounts to."""
        low, high = self.interval
        return "helped" if low > 0 else "hurt" if high < 0 else "no difference shown"


def compare_with_alone(
    mixture: Mixture, jobs: Mapping[str, FinetuningJob], out: Path, machine: Machine, display: Display, *, resume: bool
) -> None:
    """Train each task alone, unless that is done, and compare the models; write the comparison."""
    compared, exact = {}, replace(machine, precision="float32")
    for name, part in mixture.parts.items():
        run = out / ALONE / name
        display.say(f"now {name} alone:")
        run_job(jobs[name], run, resume=resume and started(run))
        together, own = (Predictor(load_model(folder), exact, display) for folder in (out / "model" / name, run))
        compared[name] = compare(together, own, part.data.held)
    _write_comparison(out, compared)
    for name, task in compared.items():
        low, high = task.interval
        display.say(
            f"{name}: {task.verdict}: {task.metric} {task.together:.2f}, alone {task.alone:.2f}, "
            f"difference {task.together - task.alone:+.2f} [{low:+.2f}, {high:+.2f}]"
        )


def compare(together: Predictor, alone: Predictor, examples: Sequence[Any]) -> AloneComparison:
    """Compare two models on the same examples."""
    task = together.task
    first, second = (task.measure(examples, model.run(examples), model.labels) for model in (together, alone))
    tested: dict[str, Any] = differences(first, second, len(examples), groups=task.groups(examples))
    metric = task.metric if task.metric in tested else next(iter(tested))
    both, own = (measure_all(measure, len(examples))[metric] for measure in (first, second))
    low, high = tested[metric]["interval"]
    return AloneComparison(metric, both, own, (low, high), tested[metric]["p"])


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
) -> None:
    """Evaluate the finished models as `evaluate` does; write them, the scores, the plot and the report."""
    scores, summaries = {}, {}
    with replaced_directory(run.model) as aside:
        for (name, part), read in zip(mixture.parts.items(), epochs, strict=True):
            model, scores[name] = score_trained(part, machine, display)
            save_trained(aside / name, part, model, scores[name])
            if warning := describe_training(run, name, mixture, read):
                scores[name].setdefault("warnings", []).append(warning)
            summaries[name] = TaskSummary(part.recipe.task.card.title, len(part.split.train), read, scores[name])
        write_tasks(aside, mixture.parts)
    replace_file(run.path / SCORES, msgspec.json.format(msgspec.json.encode(scores)))
    shutil.rmtree(run.plots, ignore_errors=True)  # plots of an earlier end of the run
    plot_training(run)
    run.report(multitask_report(run, summaries, progress))
    for name, result in scores.items():
        shown = ", ".join(f"{metric} {value:.2f}" for metric, value in result["metrics"].items())
        display.say(f"{name}: dev: {shown}")
        display.say(*(f"{name}: {note}" for note in result.get("notes", ())))
        display.warn(*(f"{name}: {warning}" for warning in result.get("warnings", ())))
    display.say(f"models: {run.model}")


def _write_comparison(out: Path, compared: Mapping[str, AloneComparison]) -> None:
    """Write the comparison, and add its table to the report."""
    lines = ["| task | metric | together | alone | difference [95 %] | p | |", "|---" * 7 + "|"]
    for name, task in compared.items():
        low, high = task.interval
        difference = f"{task.together - task.alone:+.2f} [{low:+.2f}, {high:+.2f}]"
        scores = f"{task.together:.2f} | [{task.alone:.2f}]({ALONE}/{name}/report.md)"
        lines.append(f"| {name} | {task.metric} | {scores} | {difference} | {task.p:.2g} | {task.verdict} |")
    records = {name: {**msgspec.to_builtins(task), "verdict": task.verdict} for name, task in compared.items()}
    with only_writer(out / f"{ALONE}.json"):
        replace_file(out / f"{ALONE}.json", msgspec.json.format(msgspec.json.encode(records)))
        write_section(out / "report.md", HEADING, lines)
