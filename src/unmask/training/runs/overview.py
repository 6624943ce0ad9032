"""Overviews of runs for the terminal: one line per run, or a page on one run.

Input: summaries. Output: text.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from unmask.support.errors import counted
from unmask.support.settings import flatten
from unmask.training.runs.display import duration, speed
from unmask.training.runs.summary import Seeds, Summary, metric_names

TABLES = ("task", "encoder", "downstream", "layout", "objective", "stages", "batch", "optimizer", "budget")
"""Tables of a recipe that are shown."""


def list_runs(runs: Sequence[Summary]) -> str:
    """Return a table with one line per run: directory, recipe, progress and last evaluation."""
    rows = [("run", "recipe", "kind", "state", "steps", "tokens", "time", "last held out")]
    for run in runs:
        reached, last = run.reached, run.heldout[-1] if run.heldout else {}
        shown = [name for name in metric_names([last]) if not name.endswith("_loss")]
        held = ", ".join(f"{name} {_number(last[name])}" for name in shown)
        amounts = (f"{reached.step:,}", f"{reached.tokens:,}", duration(reached.seconds))
        rows.append((str(run.path), run.name, run.kind, run.state, *amounts, held))
    return _columns(rows)


def describe_run(run: Summary) -> str:
    """Return a page on a run: settings, inputs, progress, scores and files."""
    hint = "; continue with the same command and --resume" if run.state.startswith("stopped") else ""
    parts = [f"{run.path}: {run.name}, {run.kind}, {run.state}{hint}", _origin(run), _progress(run), _scores(run)]
    return "\n\n".join(part for part in [*parts, _files(run.path)] if part)


def describe_seeds(path: Path, found: Seeds) -> str:
    """Return a page on fine-tuning runs with several seeds: the scores of each, their mean and standard deviation."""
    parts = [f"{path}: fine-tuning, {counted(len(found.seeds), 'seed')}"]
    if found.rates:
        rates = [(f"{float(rate):g}", f"{score:.2f}") for rate, score in found.rates.items()]
        parts.append(_columns([("learning rate", "on a tenth of the training examples"), *rates]))
    names = list(next(iter(found.seeds.values())))
    scores = {run: [metrics[name] for name in names] for run, metrics in found.seeds.items()}
    columns = list(zip(*scores.values(), strict=True))
    scores["mean"] = [mean(column) for column in columns]
    if len(found.seeds) > 1:
        scores["standard deviation"] = [stdev(column) for column in columns]
    rows = [(run, *(f"{score:.2f}" for score in row)) for run, row in scores.items()]
    parts += [_columns([("dev data", *names), *rows]), _files(path)]
    return "\n\n".join(part for part in parts if part)


def _origin(run: Summary) -> str:
    """Return the command, inputs, settings, machine and versions of a run."""
    provenance = run.provenance
    program, *arguments = provenance.command or ["?"]
    name = Path(program).name.replace("__main__.py", "unmask")
    rows = [("command", shlex.join([name, *arguments])), ("inputs", _pairs(provenance.inputs))]
    for name in TABLES:
        if value := run.recipe.get(name):
            shown = [_table(one) for one in (value if isinstance(value, list) else [value])]
            rows += zip((name, *[""] * (len(shown) - 1)), shown, strict=True)
    machine = {key: value for key, value in provenance.machine.items() if key != "matmul_flops_per_second"}
    fastest = f", matrix products at {speed(run.peak)}" if run.peak else ""
    rows.append(("machine", _pairs(machine) + fastest))
    versions = {"unmask": provenance.unmask, "python": provenance.python, **provenance.libraries}
    rows.append(("versions", _pairs(versions)))
    return _columns(rows)


def _progress(run: Summary) -> str:
    reached = run.reached
    steps = f"{reached.step:,} of {reached.total:,} steps" if reached.total else f"{reached.step:,} steps"
    epochs = "".join(f", {value:.2f} epochs" for value in _values(run.train[-1:], "epochs"))
    rows = [("progress", f"{steps}, {reached.tokens:,} tokens{epochs}, {duration(reached.seconds)} in steps")]
    tokens, flops = (_values(run.train, name) for name in ("tokens_per_second", "flops_per_second"))
    if tokens and flops:
        rows.append(("speed", f"{median(tokens):,.0f} tokens/s, {speed(median(flops), run.peak)}, median of the steps"))
    rows.append(("skipped", f"{reached.skipped:,} steps, loss or gradient not finite"))
    return _columns(rows)


def _scores(run: Summary) -> str:
    """Return the first, best and last value of each metric on the held-out data."""
    rows = [("held out", "first", "best", "at step", "last")]
    for name in metric_names(run.heldout):
        values = [(line[name], line["step"]) for line in run.heldout if isinstance(line.get(name), int | float)]
        if values:
            best, step = (min if name.endswith("loss") else max)(values, key=lambda value: value[0])
            first, last = values[0][0], values[-1][0]
            rows.append((name, _number(first), _number(best), f"{step:,}", _number(last)))
    return _columns(rows) if len(rows) > 1 else ""


def _files(path: Path) -> str:
    names = ("model", "report.md", "recipe.toml", "metrics.jsonl", "plots", "checkpoints")
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
    return _pairs(flatten(value) | {f"objective.{name}": "added" for name, one in objectives.items() if one == {}})


def _pairs(table: Mapping[str, Any]) -> str:
    """Return a table's keys and values in one line, with shortened digests."""
    values = {key: value[:12] if isinstance(value, str) and len(value) == 64 else value for key, value in table.items()}
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines with left-aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
