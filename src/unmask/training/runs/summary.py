"""Summaries of runs, and overviews of them for the terminal: one line per run, or a page on one run.

Input: the directories of runs, which are read without changing anything. Output: a `Summary` of each run, and text.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import msgspec

from unmask.support.durable import read_json
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument, rendered
from unmask.support.settings import flatten
from unmask.training.runs.directory import BEFORE, CHECKPOINTS, Provenance, RunDirectory
from unmask.training.runs.display import duration, speed
from unmask.training.runs.usage import FILE as USAGE
from unmask.training.runs.usage import Usage, describe_usage, read_usage

MARKS = {"recipe.toml", "provenance.json", "metrics.jsonl"}
"""A folder with at least two of these files is considered a run, intact or damaged."""
INSIDES = {CHECKPOINTS, "events", "model", "plots", *BEFORE}
"""Folders of a run that contain no other runs."""
SEEDS = "seeds.json"
"""File that `finetune seeds` and `search` write next to their runs."""
NO_METRICS = {"kind", "step", "tokens", "seconds", "epochs"}
"""Fields of a line of metrics.jsonl that are not metrics."""
BEST: Mapping[str, Callable[..., Any]] = {"loss": min, "accuracy": max, "agreement": max}
"""Chooses the best value of a metric, by the end of its name; others, such as numbers of tokens, have no best one."""


class Reached(msgspec.Struct, frozen=True):
    """Progress of a run.

    Attributes:
        step, tokens, seconds: completed so far.
        total: steps of the budget; 0: not known.
        skipped: steps that were skipped because the loss or gradient was not finite.
    """

    step: int
    tokens: int
    seconds: float
    total: int = 0
    skipped: int = 0


class Seeds(msgspec.Struct, frozen=True):
    """seeds.json: the results of several fine-tuning runs in one folder.

    Attributes:
        rates: scores of the learning rates, if the learning rate was searched.
        seeds: metrics on the dev data, by run.
    """

    rates: dict[str, float]
    seeds: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Summary:
    """Summary of a run.

    Attributes:
        path: its directory.
        recipe, provenance: contents of the files of these names.
        running: whether a program is writing to it.
        reached: its progress: that of its log while it runs, otherwise that of the checkpoint it would resume from.
        train, heldout: lines of metrics.jsonl up to that step, in order.
        usage: what each start of the program has used of the machine.
    """

    path: Path
    recipe: Mapping[str, Any]
    provenance: Provenance
    running: bool
    reached: Reached
    train: Sequence[Mapping[str, Any]]
    heldout: Sequence[Mapping[str, Any]]
    usage: Sequence[Usage] = ()

    @property
    def name(self) -> str:
        """Name of the recipe, or of the task or the tasks of a fine-tuning run."""
        tasks = ", ".join(self.recipe.get("tasks", {}))
        return str(self.recipe.get("name", self.recipe.get("task", {}).get("kind", tasks or "?")))

    @property
    def kind(self) -> str:
        """Pretraining or fine-tuning."""
        return "fine-tuning" if self.recipe.keys() & {"task", "tasks"} else "pretraining"

    @property
    def state(self) -> str:
        """Running, finished or stopped, with the step."""
        step, total = self.reached.step, self.reached.total
        position = f"step {step:,} of {total:,}" if total else f"step {step:,}"
        if self.running:
            return f"running, {position}"
        finished = step >= total and (self.path / "report.md").exists()
        return "finished" if finished else f"stopped at {position}"

    @property
    def peak(self) -> float | None:
        """Peak of the machine's matrix products in floating-point operations per second, if it was measured."""
        return self.provenance.machine.get("matmul_flops_per_second")


def find_runs(folder: str | Path) -> Iterator[Path]:
    """Yield the runs at and below a folder, intact or damaged, sorted by name; hidden folders are skipped.

    Raises:
        UserError: there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(
            "no such folder", file=folder, remedy=f"pass the {argument('out')} of a run, or a folder of runs"
        )
    for root, folders, files in os.walk(folder):
        is_run = len(MARKS.intersection(files)) > 1
        folders[:] = sorted(name for name in folders if name[0] != "." and not (is_run and name in INSIDES))
        if is_run:
            yield Path(root)


def read_run(path: str | Path) -> Summary:
    """Read a run; its checkpoints are not verified.

    Raises:
        UserError: there is no run, or it is damaged.
    """
    path = Path(path)
    run = RunDirectory(path)
    recipe, provenance, running = run.read_recipe(), run.read_provenance(), run.is_in_use()
    train, heldout = run.read_metrics("train"), run.read_metrics("heldout")
    try:
        logged = msgspec.convert(train, list[Reached])
    except msgspec.ValidationError as error:
        raise UserError(f"the file is damaged ({error})", file=run.metrics) from error
    reached = _saved(run.checkpoints) or Reached(0, 0, 0.0)
    if logged and (running or not reached.total):
        reached = msgspec.structs.replace(logged[-1], total=reached.total, skipped=reached.skipped)
    train, heldout = ([line for line in lines if line["step"] <= reached.step] for lines in (train, heldout))
    return Summary(path, recipe, provenance, running, reached, train, heldout, run.read_usage())


def read_seeds(path: Path) -> Seeds | None:
    """Read seeds.json of several fine-tuning runs; return None if there is none.

    Raises:
        UserError: the file is damaged.
    """
    file = path / SEEDS
    try:
        return read_json(file, Seeds, f"continue with the same command and {argument('resume', True)}")
    except OSError:
        return None


def metric_names(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of all metrics in some lines of a log, in order of appearance."""
    return [name for name in dict.fromkeys(name for line in lines for name in line) if name not in NO_METRICS]


def _saved(checkpoints: Path) -> Reached | None:
    """Return the progress of the newest checkpoint with readable progress."""
    for path in sorted(checkpoints.glob("step-*"), reverse=True):
        try:
            return msgspec.json.decode((path / "progress.json").read_bytes(), type=Reached)
        except (OSError, ValueError):
            continue
    return None


TABLES = ("task", "tasks", "encoder", "downstream", "layout", "objective", "stages", "batch", "optimizer", "budget")
"""Tables of a recipe that are shown."""


def runs_table(runs: Sequence[Summary]) -> str:
    """Return a table with one line per run: directory, recipe, progress and last evaluation."""
    rows = [("run", "recipe", "kind", "state", "steps", "tokens", "time", "last held out")]
    for run in runs:
        reached, last = run.reached, run.heldout[-1] if run.heldout else {}
        shown = [name for name in metric_names([last]) if not name.endswith("_loss")]
        held = ", ".join(f"{name} {_number(last[name])}" for name in shown)
        amounts = (f"{reached.step:,}", f"{reached.tokens:,}", duration(reached.seconds))
        rows.append((str(run.path), run.name, run.kind, run.state, *amounts, held))
    return _columns(rows)


def run_page(run: Summary, price: float | None = None) -> str:
    """Return a page on a run: settings, inputs, progress, usage and its cost (`describe_usage`), scores and files."""
    hint = f"; continue with the same command and {argument('resume', True)}" if run.state.startswith("stopped") else ""
    parts = [
        f"{run.path}: {run.name}, {run.kind}, {run.state}{hint}",
        _origin(run),
        _progress(run, price),
        _scores(run),
    ]
    return rendered("\n\n".join(part for part in [*parts, _files(run.path)] if part))


def seeds_page(path: Path, runs: Seeds, price: float | None = None) -> str:
    """Return a page on fine-tuning runs with several seeds: the scores of each, their mean and standard deviation.

    What all runs together have used is shown, and its cost; see `describe_usage`.
    """
    parts = [f"{path}: fine-tuning, {counted(len(runs.seeds), 'seed')}"]
    if runs.rates:
        rates = [(f"{float(rate):g}", f"{score:.2f}") for rate, score in runs.rates.items()]
        parts.append(_columns([("learning rate", "on a tenth of the training examples"), *rates]))
    names = list(next(iter(runs.seeds.values())))
    scores = {run: [metrics[name] for name in names] for run, metrics in runs.seeds.items()}
    columns = list(zip(*scores.values(), strict=True))
    scores["mean"] = [mean(column) for column in columns]
    if len(runs.seeds) > 1:
        scores["standard deviation"] = [stdev(column) for column in columns]
    rows = [(run, *(f"{score:.2f}" for score in row)) for run, row in scores.items()]
    parts.append(_columns([("dev data", *names), *rows]))
    if used := usage_below(path, price):
        parts.append(_columns([("used", used)]))
    parts.append(_files(path))
    return "\n\n".join(part for part in parts if part)


def usage_below(path: Path, price: float | None = None) -> str:
    """Return what all runs at and below a directory have used together, in words; see `describe_usage`."""
    return describe_usage([usage for run in find_runs(path) for usage in read_usage(run / USAGE)], price)


def _origin(run: Summary) -> str:
    """Return the command, inputs, settings, machine and versions of a run."""
    provenance = run.provenance
    program, *arguments = provenance.command or ["?"]
    name = Path(program).name.replace("__main__.py", "unmask")
    rows = [("command", shlex.join([name, *arguments])), ("inputs", _pairs(provenance.inputs))]
    for name in TABLES:
        if value := run.recipe.get(name):
            shown = [_table(item) for item in (value if isinstance(value, list) else [value])]
            rows += zip((name, *[""] * (len(shown) - 1)), shown, strict=True)
    machine = {key: value for key, value in provenance.machine.items() if key != "matmul_flops_per_second"}
    fastest = f", matrix products at {speed(run.peak)}" if run.peak else ""
    rows.append(("machine", _pairs(machine) + fastest))
    versions = {"unmask": provenance.unmask, "python": provenance.python, **provenance.libraries}
    rows.append(("versions", _pairs(versions)))
    return _columns(rows)


def _progress(run: Summary, price: float | None) -> str:
    reached = run.reached
    steps = f"{reached.step:,} of {counted(reached.total, 'step')}" if reached.total else counted(reached.step, "step")
    epochs = "".join(f", {value:.2f} epochs" for value in _values(run.train[-1:], "epochs"))
    rows = [("progress", f"{steps}, {reached.tokens:,} tokens{epochs}, {duration(reached.seconds)} in steps")]
    tokens, flops = (_values(run.train, name) for name in ("tokens_per_second", "flops_per_second"))
    if tokens and flops:
        rows.append(("speed", f"{median(tokens):,.0f} tokens/s, {speed(median(flops), run.peak)}, median of the steps"))
    rows.append(("skipped", f"{counted(reached.skipped, 'step')}, loss or gradient not finite"))
    if used := describe_usage(run.usage, price):
        rows.append(("used", used))
    return _columns(rows)


def _scores(run: Summary) -> str:
    """Return the first, best and last value of each metric on the held-out data; the best one, if it has one."""
    rows = [("held out", "first", "best", "at step", "last")]
    for name in metric_names(run.heldout):
        values = [(line[name], line["step"]) for line in run.heldout if isinstance(line.get(name), int | float)]
        if values:
            chosen = [choose(values, key=lambda value: value[0]) for end, choose in BEST.items() if name.endswith(end)]
            best, at = next(((_number(value), f"{step:,}") for value, step in chosen), ("-", "-"))
            rows.append((name, _number(values[0][0]), best, at, _number(values[-1][0])))
    return _columns(rows) if len(rows) > 1 else ""


def _files(path: Path) -> str:
    names = ("model", "report.md", "recipe.toml", "metrics.jsonl", "plots", CHECKPOINTS)
    rows = [(name, str(path / name)) for name in names if (path / name).exists()]
    if (path / "events").exists():
        rows.append(("TensorBoard", f"tensorboard --logdir {path / 'events'}"))
    return _columns(rows)


def _values(lines: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [line[name] for line in lines if isinstance(line.get(name), int | float)]


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else "?"


def _table(value: Any) -> str:
    """Return a table of a recipe, or a stage, whose `objective` may have an empty table for each added objective."""
    if not isinstance(value, dict):
        return str(value)
    objectives = value.get("objective") or {}
    return _pairs(
        flatten(value) | {f"objective.{name}": "added" for name, settings in objectives.items() if settings == {}}
    )


def _pairs(table: Mapping[str, Any]) -> str:
    """Return a table's keys and values in one line, with shortened digests."""
    values = {key: value[:12] if isinstance(value, str) and len(value) == 64 else value for key, value in table.items()}
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines with left-aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
