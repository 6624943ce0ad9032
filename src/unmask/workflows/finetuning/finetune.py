"""Fine-tuning of a model on labeled examples: all parameters, one new layer, one documented rule for the defaults.

One run, or several of one recipe: one per seed, optionally after a small search for the learning rate.

Results of fine-tuning vary between seeds (Dodge et al. 2020), so a single score is unreliable. RUN/seed-0, RUN/seed-1,
… are complete runs, RUN/report.md states their mean and standard deviation, and RUN/model is the best of them on the
dev data. Data that was used for a choice is not reported on: learning rates are compared on a tenth of the training
examples, by the runs RUN/rate-…. Only the score of the best seed is biased by the selection, as the report states.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.labelled.columns import as_columns
from unmask.data.labelled.table import Data, as_sources
from unmask.support.choices import ColumnNames, Device, DownstreamKind, Format, Precision
from unmask.support.durable import only_writer, replace_file, replaced_directory
from unmask.support.environment import rank_and_size
from unmask.support.errors import UserError, check_count, refuse_idle
from unmask.support.messages import argument, call, rendered, setting
from unmask.support.settings import Overrides, with_minutes
from unmask.tasks import TASKS
from unmask.training.evaluate import NotFiniteError
from unmask.training.machine import choose_machine
from unmask.training.processes import Processes
from unmask.training.runs.directory import FEATURES, RunDirectory
from unmask.training.runs.display import Display
from unmask.training.runs.summary import usage_below
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel, LabelledFiles
from unmask.workflows.finetuning.run_job import read_scores, run_job
from unmask.workflows.pretraining.restarts import started

FACTORS = (0.5, 1.0, 2.0, 4.0)
"""Multiples of the default learning rate that a search tries."""
RATE = "optimizer.learning_rate"
"""Key of the setting that is searched."""


def finetune(
    task: str,
    model: str | Path,
    train: Data,
    out: str | Path,
    *,
    dev: Data = (),
    all_examples: bool = False,
    examples: int | None = None,
    columns: ColumnNames | None = None,
    format: Format | None = None,
    encoding: str | None = None,
    tokenizer: str | Path | None = None,
    allow_pickle: bool = False,
    seeds: int | None = None,
    search: bool = False,
    frozen: bool | None = None,
    downstream: DownstreamKind | None = None,
    minutes: float | None = None,
    settings: Overrides | None = None,
    recipe: str | Path | None = None,
    resume: bool = False,
    device: Device = "auto",
    precision: Precision = "auto",
    workers: int | None = None,
    deterministic: bool = False,
    quiet: bool = False,
) -> Path:
    """Fine-tune a model on labeled examples.

    Args:
        task: what the model learns: one of `unmask.tasks.TASKS`.
        model: run directory, Hugging Face model directory or name on the Hub, directory of AllenNLP's ELMo, or
            random:RECIPE, an untrained model.
        train: labeled examples: .tsv, .csv, .jsonl, .json, .parquet, .arrow, .xlsx, .ods, .sqlite, a directory of
            datasets or the name of a data set on the Hub, NAMESPACE/NAME#SPLIT (for token-classification and spans also
            CoNLL columns; for question-answering .json in SQuAD format, for quac, coqa and hotpotqa their own files,
            for multiple-choice those of SWAG or RACE, or rows), optionally compressed (.gz, .xz, .zst); in Python also
            examples in memory.
        out: run directory to write.
        dev: labeled examples to score on after training, not used for any choice; by default a tenth of train is held
            out, the same for all seeds.
        all_examples: train on all of train, without scores, instead of holding out a tenth.
        examples: train on so many of train only, drawn at random with the seed, to learn what more labels are worth.
        columns: names of the columns to read, or their numbers from 0 for a file without a header.
        format: file format; by default that of the file's suffix.
        encoding: encoding of the files; by default UTF-8, or what a byte-order mark declares.
        tokenizer: directory of a tokenizer, or of a model or run that has one, or name of a model on the Hub; for
            random:RECIPE.
        allow_pickle: load pickled weights (pytorch_model.bin), restricted to tensors.
        seeds: train so many times with different seeds in RUN/seed-0, RUN/seed-1, …, and keep the model with the best
            dev score as RUN/model.
        search: first choose among four learning rates, by a tenth of train held out.
        frozen: do not train the encoder; its features are computed only once. By default it is frozen only if labels
            are few (docs/fine-tuning.md).
        downstream: small model to train on top of the encoder's layers; with frozen, linear by default.
        minutes: time to train at most: fewer epochs, if the default ones take longer (budget.max_minutes).
        settings: settings to change, for example budget.epochs=5.
        recipe: recipe in place of the rule for defaults, such as the recipe.toml of an earlier run, to run it again.
        resume: continue the run from its last checkpoint.
        device: where to compute; mps is the GPU of Apple's processors, auto is cuda if available, or cpu.
        precision: number format of the computation; auto is bf16 where it is faster than float32.
        workers: number of processes that prepare batches in advance, without effect on the results; by default 2 on a
            GPU, 0 on a CPU.
        deterministic: on a GPU, compute with kernels that give the same numbers each time, where torch has them; they
            are slower.
        quiet: print only results and errors.

    Returns:
        The directory of the model, RUN/model.

    Raises:
        UserError: files, model and run are inconsistent.
        UnmaskError: the run was interrupted; it is saved.
    """
    changes = with_minutes(settings or {}, "budget.max_minutes", minutes)
    start = InitialModel(model, tokenizer, allow_pickle)
    files = LabelledFiles(as_sources(train, encoding), as_sources(dev, encoding), as_columns(columns), format)
    job = FinetuningJob(task, start, files, changes, frozen, downstream, None, quiet, all_examples, recipe, examples)
    if seeds is None and not search:
        with Processes.launched() as processes:
            machine = choose_machine(device, precision, workers, processes, deterministic=deterministic)
            return run_job(replace(job, machine=machine), out, resume=resume)
    job = replace(job, machine=choose_machine(device, precision, workers, deterministic=deterministic))
    best = run_trials(job, out, seeds=1 if seeds is None else seeds, search=search, resume=resume)
    Display(quiet=quiet).say((Path(out) / "report.md").read_text(encoding="utf8"))
    return best


def run_trials(job: FinetuningJob, out: str | Path, *, seeds: int, search: bool = False, resume: bool = False) -> Path:
    """Fine-tune with several seeds; write the best model and a report.

    Args:
        job: the task, the model, the files and the settings.
        out: the directory of all runs.
        seeds: number of seeds; the first is that of the job's settings, or 0.
        search: whether to try half, once, twice and four times the default learning rate first.
        resume: whether to continue the runs in `out`.

    Returns:
        The directory of the best model, RUN/model.

    Raises:
        UserError: the directory is not empty, or the search has no effect.
    """
    out, rates = Path(out), dict[float, float]()
    job.check()
    _check(job, out, seeds, search, resume)
    out.resolve().parent.mkdir(parents=True, exist_ok=True)
    with only_writer(out):
        if search:
            started = [run for run in out.glob("seed-*") if can_resume(run, resume)]  # they keep their learning rate
            if started:
                earlier = {_rate(run): _metrics(run) for run in _converged(out)}
                rates = {rate: found[metric_of(job.task, found)] for rate, found in earlier.items()}
                chosen = _rate(started[0])
            else:
                rates = search_rates(job, out, resume)
                chosen = max(rates, key=lambda rate: rates[rate])
            rates = dict(sorted(rates.items()))
            job = _with(job, RATE, chosen)
        first = job.settings.get("seed", 0)
        metrics: dict[str, dict[str, float]] = {}
        for seed in range(first, first + seeds):
            run = out / f"seed-{seed}"
            run_job(_with(job, "seed", seed), run, resume=can_resume(run, resume), features=out / FEATURES)
            metrics[run.name] = _metrics(run)
        best = max(metrics, key=lambda name: metrics[name][metric_of(job.task, metrics[name])])
        with replaced_directory(out / "model") as aside:
            _copy(out / best / "model", aside)
        shutil.rmtree(out / FEATURES, ignore_errors=True)
        replace_file(out / "seeds.json", msgspec.json.format(msgspec.json.encode({"rates": rates, "seeds": metrics})))
        replace_file(out / "report.md", rendered(_report(out, job.task, rates, metrics, best)).encode())
        return out / "model"


def search_rates(job: FinetuningJob, out: Path, resume: bool, *, metric: str = "") -> dict[float, float]:
    """Return the score of each learning rate on a tenth of the training examples; none where training diverges.

    Args:
        job: what is fine-tuned.
        out: the directory of the runs.
        resume: whether to continue them.
        metric: the metric; "", or if a run does not have it: that of the task.

    Raises:
        NotFiniteError: it diverges with all of them.
    """
    scores = {}
    rate = None
    if job.frozen is None:  # the rule for few labels trains otherwise, and only as long as no rate is named
        job = replace(job, frozen=False)
    for factor in sorted(FACTORS, key=lambda factor: factor != 1):  # the default rate first, to read it from the run
        run = out / f"rate-x{factor:g}"
        trial = job if rate is None else _with(job, RATE, float(f"{rate * factor:.3g}"))
        try:
            run_job(trial, run, resume=can_resume(run, resume), choosing=True, features=out / FEATURES)
            metrics = _metrics(run)
            scores[_rate(run)] = metrics[metric if metric in metrics else metric_of(job.task, metrics)]
        except NotFiniteError:
            if not scores and factor == FACTORS[-1]:
                raise
        rate = rate or _rate(run)
    return scores


def can_resume(run: Path, resume: bool) -> bool:
    """Return whether a run is to be resumed and can be; another one starts, again if it had not saved a step."""
    return resume and (run / "recipe.toml").exists() and started(run)


def metric_of(task: str, metrics: Mapping[str, float]) -> str:
    """Return the metric that selects; if the data do not have it, their first one."""
    return TASKS[task].metric if TASKS[task].metric in metrics else next(iter(metrics))


def _copy(model: Path, folder: Path) -> None:
    """Copy the files of a directory; `shutil.copytree` raises an error without the cause."""
    for path in sorted(model.rglob("*")):
        target = folder / path.relative_to(model)
        if path.is_dir():
            target.mkdir()
        else:
            shutil.copyfile(path, target)


def _check(job: FinetuningJob, out: Path, seeds: int, search: bool, resume: bool) -> None:
    """Raise an error for options that are impossible or have no effect."""
    check_count("seeds", seeds)
    if rank_and_size()[1] > 1:
        raise UserError(
            f"{argument('seeds')} and {argument('search', True)} do not run under torchrun",
            remedy="start each seed separately",
        )
    if job.all_examples:
        raise UserError(
            f"{argument('all_examples')} leaves no scores for {argument('seeds')} and "
            f"{argument('search', True)} to choose by",
            remedy="remove it",
        )
    if not resume and out.exists() and any(out.iterdir()):
        raise UserError(
            "the directory is not empty",
            file=out,
            remedy=f"choose another {argument('out')}, or pass {argument('resume', True)}",
        )
    if RATE in job.settings:
        refuse_idle(f"with {setting(RATE, '…')}", search=search)
    seed = job.settings.get("seed", 0)
    if type(seed) is not int or seed < 0:
        raise UserError(f"{setting('seed', seed)}: not a whole number from 0")


def _with(job: FinetuningJob, key: str, value: Any) -> FinetuningJob:
    """Return the job with one setting changed."""
    return replace(job, settings={**job.settings, key: value})


def _converged(out: Path) -> list[Path]:
    """Return the runs of a search that have scores."""
    return [scores.parent for scores in sorted(out.glob("rate-x*/dev.json"))]


def _rate(run: Path) -> float:
    return float(RunDirectory(run).read_recipe()["optimizer"]["learning_rate"])


def _metrics(run: Path) -> dict[str, float]:
    metrics: dict[str, float] = read_scores(run)["metrics"]
    return metrics


def _report(
    out: Path, task: str, rates: Mapping[float, float], trials: Mapping[str, Mapping[str, float]], best: str
) -> str:
    names = list(next(iter(trials.values())))
    many = f"{len(trials)} seeds" if len(trials) > 1 else "one seed"
    lines = [f"# {task.replace('-', ' ').capitalize()}, {many}", ""]
    if rates:
        chosen_by = metric_of(task, _metrics(_converged(out)[0]))
        lines += [f"| learning rate | {chosen_by} on a tenth of the training examples |", "|---|---|"]
        lines += [f"| {rate:g} | {score:.2f} |" for rate, score in rates.items()]
        lines += ["", f"Selected: {_rate(out / best):g}.", ""]
    lines += ["| dev data | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for run, metrics in trials.items():
        lines.append(f"| [{run}]({run}/report.md) | " + " | ".join(f"{metrics[name]:.2f}" for name in names) + " |")
    columns = [[metrics[name] for metrics in trials.values()] for name in names]
    lines.append("| **mean** | " + " | ".join(f"{statistics.mean(column):.2f}" for column in columns) + " |")
    if len(trials) > 1:
        spread = " | ".join(f"{statistics.stdev(column):.2f}" for column in columns)
        lines.append(f"| standard deviation | {spread} |")
    if len(trials) > 1:
        lines += [
            "",
            f"`model/` is that of {best}, the best by {metric_of(task, trials[best])} on the dev data. Expect it to "
            "score like the mean: its own score is biased by the selection.",
        ]
    if used := usage_below(out):
        lines += ["", f"Used, with all seeds and learning rates: {used}."]
    lines += [
        "",
        "```",
        f"{call('evaluate', model=out, data='FILE')}",
        "```",
    ]
    return "\n".join(lines) + "\n"
