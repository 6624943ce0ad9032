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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from unmask.errors import UserError
from unmask.finetuning.frozen import FEATURES
from unmask.runs.directory import RunDirectory
from unmask.tasks import TASKS

FACTORS = (0.5, 1.0, 2.0, 4.0)
"""What the rule's learning rate is multiplied by in a search."""


class Tune(Protocol):
    """`finetune.finetune` with all but these arguments given."""

    def __call__(  # noqa: D102
        self, out: Path, *, settings: Sequence[str], resume: bool, choosing: bool, features: Path
    ) -> Path: ...


def several(
    tune: Tune,
    task: str,
    out: str | Path,
    *,
    seeds: int,
    search: bool = False,
    settings: Sequence[str] = (),
    resume: bool = False,
) -> Path:
    """Fine-tune with several seeds, and leave the best model and a report.

    Args:
        tune: fine-tunes once.
        task: one of `unmask.tasks.TASKS`.
        out: the directory of all runs.
        seeds: how many; the first is that of `settings`, or 0.
        search: try the rule's learning rate, half, twice and four times of it first.
        settings: KEY=VALUE over the defaults.
        resume: go on with what is there.

    Returns:
        The directory of the best model, RUN/model.

    Raises:
        UserError: the directory is not empty, or the search has no effect.
    """
    out, settings = Path(out), list(settings)
    if seeds < 1:
        raise UserError(f"{seeds} seeds are none", remedy="pass --seeds 1 or more")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("--seeds and --search do not run under torchrun", remedy="start each seed by itself")
    if not resume and out.exists() and any(out.iterdir()):
        raise UserError("the directory is not empty", file=out, remedy="choose another --out, or pass --resume")
    if search and any(text.startswith("optimizer.learning_rate=") for text in settings):
        raise UserError("--search has no effect with --set optimizer.learning_rate=…", remedy="leave one of them away")
    rates = {}
    if search:
        begun = [run for run in out.glob("seed-*") if _begun(run, resume)]  # with a rate, which stays theirs
        rates = _rates(out, task) if begun else _search(tune, task, out, settings, resume)
        chosen = _rate(begun[0]) if begun else max(rates, key=lambda rate: rates[rate])
        settings.append(f"optimizer.learning_rate={chosen}")
    given = next((text.partition("=")[2] for text in reversed(settings) if text.startswith("seed=")), "0")
    if not given.isdecimal():
        raise UserError(f"--set seed={given}: not a whole number from 0")
    first = int(given)
    found: dict[str, dict[str, float]] = {}
    for seed in range(first, first + seeds):
        run = out / f"seed-{seed}"
        tune(
            run,
            settings=[*settings, f"seed={seed}"],
            resume=_begun(run, resume),
            choosing=False,
            features=out / FEATURES,
        )
        found[run.name] = _metrics(run)
    best = max(found, key=lambda name: found[name][_metric(task)])
    _copy_model(out / best / "model", out / "model")
    shutil.rmtree(out / FEATURES, ignore_errors=True)
    (out / "seeds.json").write_bytes(msgspec.json.format(msgspec.json.encode({"rates": rates, "seeds": found})))
    (out / "report.md").write_text(_report(out, task, rates, found, best), encoding="utf8")
    return out / "model"


def _search(tune: Tune, task: str, out: Path, settings: Sequence[str], resume: bool) -> dict[float, float]:
    """Return the score of each learning rate on a tenth of the training examples."""
    found = {}
    rate = None
    for factor in sorted(FACTORS, key=lambda factor: factor != 1):  # the rule's own first: it tells the rate
        run = out / f"rate-x{factor:g}"
        chosen: list[str] = [] if rate is None else [f"optimizer.learning_rate={rate * factor:.3g}"]
        tune(
            run,
            settings=[*settings, *chosen],
            resume=_begun(run, resume),
            choosing=True,
            features=out / FEATURES,
        )
        used = _rate(run)
        rate = rate or used
        found[used] = _metrics(run)[_metric(task)]
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
