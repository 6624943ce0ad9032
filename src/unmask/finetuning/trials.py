"""Several fine-tunings, one answer: the same recipe with several seeds, and before that a small search of the rate.

Fine-tuning varies from seed to seed (Dodge et al. 2020), so one figure says little: RUN/seed-0, RUN/seed-1, … are runs
of their own, RUN/report.md has their mean and deviation, RUN/model is the best of them by the dev data. What chose is
never what is reported: learning rates are compared on a tenth of the training examples, by runs in RUN/rate-…; only
the figure of the best seed is flattered by having been chosen, and the report says so.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from unmask.errors import UserError
from unmask.finetuning.finetune import run_job
from unmask.finetuning.frozen import FEATURES
from unmask.finetuning.job import Job
from unmask.runs.directory import RunDirectory
from unmask.settings import write_line
from unmask.tasks import TASKS

FACTORS = (0.5, 1.0, 2.0, 4.0)
"""What the rule's learning rate is multiplied by in a search."""
RATE = "optimizer.learning_rate"
"""The setting that is searched for."""


def several(job: Job, out: str | Path, *, seeds: int, search: bool = False, resume: bool = False) -> Path:
    """Fine-tune with several seeds, and leave the best model and a report.

    Args:
        job: what is asked for.
        out: the directory of all runs.
        seeds: how many; the first is that of the job's settings, or 0.
        search: try the rule's learning rate, half, twice and four times of it first.
        resume: go on with what is there.

    Returns:
        The directory of the best model, RUN/model.

    Raises:
        UserError: the directory is not empty, or the search has no effect.
    """
    out = Path(out)
    job.check()
    _check(job, out, seeds, search, resume)
    rates = {}
    if search:
        begun = [run for run in out.glob("seed-*") if _begun(run, resume)]  # with a rate, which stays theirs
        rates = _rates(out, job.task) if begun else _search(job, out, resume)
        chosen = _rate(begun[0]) if begun else max(rates, key=lambda rate: rates[rate])
        job = _with(job, RATE, chosen)
    first = job.settings.get("seed", 0)
    found: dict[str, dict[str, float]] = {}
    for seed in range(first, first + seeds):
        run = out / f"seed-{seed}"
        run_job(_with(job, "seed", seed), run, resume=_begun(run, resume), features=out / FEATURES)
        found[run.name] = _metrics(run)
    best = max(found, key=lambda name: found[name][_metric(job.task)])
    _copy_model(out / best / "model", out / "model")
    shutil.rmtree(out / FEATURES, ignore_errors=True)
    (out / "seeds.json").write_bytes(msgspec.json.format(msgspec.json.encode({"rates": rates, "seeds": found})))
    (out / "report.md").write_text(_report(out, job.task, rates, found, best), encoding="utf8")
    return out / "model"


def _check(job: Job, out: Path, seeds: int, search: bool, resume: bool) -> None:
    """Refuse what is asked for but cannot be done, or has no effect."""
    if seeds < 1:
        raise UserError(f"{seeds} seeds are none", remedy="pass --seeds 1 or more")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("--seeds and --search do not run under torchrun", remedy="start each seed by itself")
    if not resume and out.exists() and any(out.iterdir()):
        raise UserError("the directory is not empty", file=out, remedy="choose another --out, or pass --resume")
    if search and RATE in job.settings:
        raise UserError(f"--search has no effect with --set {RATE}=…", remedy="leave one of them away")
    seed = job.settings.get("seed", 0)
    if type(seed) is not int or seed < 0:
        raise UserError(f"--set {write_line('seed', seed)}: not a whole number from 0")


def _with(job: Job, key: str, value: Any) -> Job:
    """Return the job with another setting."""
    return replace(job, settings={**job.settings, key: value})


def _search(job: Job, out: Path, resume: bool) -> dict[float, float]:
    """Return the score of each learning rate on a tenth of the training examples."""
    found = {}
    rate = None
    for factor in sorted(FACTORS, key=lambda factor: factor != 1):  # the rule's own first: it tells the rate
        run = out / f"rate-x{factor:g}"
        trial = job if rate is None else _with(job, RATE, float(f"{rate * factor:.3g}"))
        run_job(trial, run, resume=_begun(run, resume), choosing=True, features=out / FEATURES)
        used = _rate(run)
        rate = rate or used
        found[used] = _metrics(run)[_metric(job.task)]
    return found


def _rates(out: Path, task: str) -> dict[float, float]:
    """Return what a search has found before."""
    return {_rate(run): _metrics(run)[_metric(task)] for run in sorted(out.glob("rate-x*"))}


def _rate(run: Path) -> float:
    recipe: dict[str, Any] = tomllib.loads((run / "recipe.toml").read_text(encoding="utf8"))
    return float(recipe["optimizer"]["learning_rate"])


def _begun(run: Path, resume: bool) -> bool:
    """Say whether a run is there to go on with; what broke off before its first checkpoint makes room."""
    if not resume or not (run / "recipe.toml").exists():
        return False
    if any((run / "checkpoints").glob("step-*")):
        return True
    RunDirectory.forget_unstarted(run)
    return False


def _metrics(run: Path) -> dict[str, float]:
    metrics: dict[str, float] = msgspec.json.decode((run / "dev.json").read_bytes())["metrics"]
    return metrics


def _metric(task: str) -> str:
    return TASKS[task].metric


def _copy_model(source: Path, target: Path) -> None:
    aside = target.with_name(".writing-model")
    shutil.rmtree(aside, ignore_errors=True)
    shutil.copytree(source, aside)
    shutil.rmtree(target, ignore_errors=True)
    aside.rename(target)


def _report(
    out: Path, task: str, rates: Mapping[float, float], found: Mapping[str, Mapping[str, float]], best: str
) -> str:
    names = list(next(iter(found.values())))
    many = f"{len(found)} seeds" if len(found) > 1 else "one seed"
    lines = [f"# {task.replace('-', ' ').capitalize()}, {many}", ""]
    if rates:
        lines += ["| learning rate | " + _metric(task) + " on a tenth of the training examples |", "|---|---|"]
        lines += [f"| {rate:g} | {score:.2f} |" for rate, score in rates.items()]
        lines += ["", f"{_rate(out / best):g} was taken.", ""]
    lines += ["| dev data | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for run, metrics in found.items():
        lines.append(f"| [{run}]({run}/report.md) | " + " | ".join(f"{metrics[name]:.2f}" for name in names) + " |")
    columns = [[metrics[name] for metrics in found.values()] for name in names]
    lines.append("| **mean** | " + " | ".join(f"{statistics.mean(column):.2f}" for column in columns) + " |")
    if len(found) > 1:
        spread = " | ".join(f"{statistics.stdev(column):.2f}" for column in columns)
        lines.append(f"| standard deviation | {spread} |")
    if len(found) > 1:
        lines += [
            "",
            f"`model/` is that of {best}, the best by {_metric(task)} on the dev data: expect of it what the mean "
            "says, as its own figure was picked.",
        ]
    lines += [
        "",
        "```",
        f"unmask evaluate --model {out} --data FILE",
        "```",
    ]
    return "\n".join(lines) + "\n"
