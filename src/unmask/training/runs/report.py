"""Runs in words: report.md in a directory, and lists, descriptions and plots of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from unmask.support.choices import Files, as_files
from unmask.support.durable import replace_file
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument, call, in_command, rendered
from unmask.support.model_card import Card
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.display import Display, RunProgress, duration
from unmask.training.runs.plots import draw_runs
from unmask.training.runs.summary import find_runs, read_run, read_seeds, run_page, runs_table, seeds_page
from unmask.training.runs.usage import check_price, describe_usage


def list_runs(folders: Files) -> str:
    """List the runs in directories and their subdirectories, one per line.

    Args:
        folders: runs, or directories that contain runs.

    Returns:
        The table. Runs that cannot be read are named on standard error.

    Raises:
        UserError: there is no such folder, or no run in it.
    """
    paths = dict.fromkeys(path for folder in as_files(folders) for path in find_runs(folder))
    runs, damaged = [], []
    for path in paths:
        try:
            runs.append(read_run(path))
        except UserError as error:
            damaged.append(error.message)
    if not paths:
        raise UserError(
            f"there is no run in {', '.join(map(str, as_files(folders)))} or its subdirectories",
            remedy=f"name the {argument('out')} of a run",
        )
    if damaged:
        Display().say("\n  ".join([f"runs that cannot be read: {len(damaged)}", *damaged]))
    return runs_table(runs) if runs else ""


def describe_run(run: str | Path, *, price: float | None = None) -> str:
    """Describe a run: recipe and data, progress, what it used of the machine, and held-out metrics.

    Args:
        run: run directory, or directory of a fine-tuning with several seeds.
        price: price of an hour of the machine, or of all together, in any currency: what the run costs at it is shown.

    Raises:
        UserError: there is no run, it is damaged, or the price is negative.
    """
    check_price(price)
    seeds = read_seeds(Path(run))
    return seeds_page(Path(run), seeds, price) if seeds else run_page(read_run(run), price)


def plot_runs(
    runs: Files, out: str | Path, *, metric: str = "loss", over: Literal["steps", "tokens", "minutes"] = "tokens"
) -> None:
    """Plot a metric of several runs: held-out values, and smoothed training values.

    Args:
        runs: run directories.
        out: image to write, FILE.svg.
        metric: name of the metric in metrics.jsonl.
        over: horizontal axis.

    Raises:
        UserError: there is no such run, it has not logged the metric, or the image has another suffix.
    """
    if Path(out).suffix != ".svg":
        raise UserError("plots are written as SVG", file=out, remedy="name it FILE.svg")
    paths: list[Path] = []
    for path in map(Path, as_files(runs)):
        seeds = read_seeds(path)
        paths += [path / name for name in seeds.seeds] if seeds else [path]
    draw_runs([read_run(path) for path in paths], out, metric=metric, over=over)
    Display().say(f"plot: {out}")


@dataclass(frozen=True)
class Remarks:
    """Remarks on a run for its report.

    Attributes:
        how: what the run did.
        changes: what was changed in the model that the run started from.
        stages: the stages of the run, if there are several, and heads that were only trained in earlier ones.
        notes: baselines for its held-out metrics.
        warnings: warnings for the user.
        usage: commands that use the trained model.
    """

    how: str = "Pretrained"
    changes: Sequence[str] = ()
    stages: Sequence[str] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    usage: Sequence[str] = ()


def pretraining_report(run: RunDirectory, name: str, progress: RunProgress, remarks: Remarks) -> str:
    """Return report.md of a pretraining run.

    Args:
        run: run whose metrics are read.
        name: name of the recipe.
        progress: final progress of the run.
        remarks: remarks on the run.
    """
    heldout = run.read_metrics("heldout")
    lines = [f"# {name}, {remarks.how[0].lower()}{remarks.how[1:]}", "", _totals(run, progress), ""]
    lines += [line for change in remarks.changes for line in (f"{change[0].upper()}{change[1:]}.", "")]
    if remarks.stages:
        lines += ["Stages:", "", *(f"- {line}" for line in remarks.stages), ""]
    if heldout:
        first, last = heldout[0], heldout[-1]
        lines += ["| held out | before the first step | after the last |", "|---|---|---|"]
        lines += [f"| {key} | {_number(first[key])} | {_number(last[key])} |" for key in last if _is_metric(key)]
    else:
        lines += ["No held-out text was scored: nothing says how well the model predicts other text."]
    lines += [line for note in remarks.notes for line in ("", note)]
    lines += [line for warning in remarks.warnings for line in ("", f"**{warning}**")]
    lines += [
        *_plot(run, "training"),
        *_usage(
            *remarks.usage,
            call("finetune", "classification", model=run.path, train="FILE", out="RUN"),
        ),
        "",
        "`model/` is a Hugging Face directory; `recipe.toml` has all settings; `metrics.jsonl` has one line per step.",
    ]
    return "\n".join(lines) + "\n"


def metric_name(name: str, positive: str | None) -> str:
    """Return how a metric is called in print: F1 of one of two labels names the label."""
    return f"f1 of '{positive}'" if name == "f1" and positive else name


def finetuning_report(
    run: RunDirectory,
    card: Card,
    labels: Sequence[str],
    progress: RunProgress,
    examples: int,
    result: Mapping[str, Any],
) -> str:
    """Return report.md of a fine-tuning run; `result` is that of `score_examples` on the dev data, maybe empty."""
    metrics: Mapping[str, float] = result.get("metrics", {})
    lines = [
        f"# {card.title}" + (f": {', '.join(labels)}" if labels else ""),
        "",
        f"{counted(examples, 'training example')}. {_totals(run, progress)}",
        "",
    ]
    if metrics:
        lines += ["| dev data, not used for any choice | |", "|---|---|"]
        names = {name: metric_name(name, result.get("positive")) for name in metrics}
        lines += [f"| {names[name]} | {value:.2f} |" for name, value in metrics.items()]
        lines += _told(result)
        lines += _by_label(result.get("by_label", {}))
        lines += _plot(run, "confusion")
    lines += [
        *_plot(run, "training"),
        *_usage(
            rendered(call("predict", model=run.path, **card.usage), in_command),
            rendered(call("evaluate", model=run.path, data="FILE"), in_command),
        ),
    ]
    return "\n".join(lines) + "\n"


def _told(result: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return lines with the notes and the warnings of a result."""
    texts = [f"{prefix}{note}" for note in result.get("notes", ())]
    texts += [f"**{prefix}{warning}**" for warning in result.get("warnings", ())]
    return [line for text in texts for line in ("", text)]


@dataclass(frozen=True)
class TaskSummary:
    """One of the tasks of a run on several.

    Attributes:
        title: title of a model for it.
        examples: number of training examples.
        epochs: how often they were read.
        result: that of `score_examples` on its dev data.
    """

    title: str
    examples: int
    epochs: float
    result: Mapping[str, Any]


def multitask_report(run: RunDirectory, tasks: Mapping[str, TaskSummary], progress: RunProgress) -> str:
    """Return report.md of a run on several tasks, given by their names."""
    lines = [
        f"# Several tasks: {', '.join(tasks)}",
        "",
        f"One encoder. {_totals(run, progress)}",
        "",
        "| task | | training examples | epochs | dev data, not used for any choice |",
        "|---|---|---|---|---|",
    ]
    for name, task in tasks.items():
        positive = task.result.get("positive")
        scores = [f"{metric_name(key, positive)} {value:.2f}" for key, value in task.result["metrics"].items()]
        lines.append(f"| {name} | {task.title} | {task.examples:,} | {task.epochs:.1f} | {', '.join(scores)} |")
    lines += [line for name, task in tasks.items() for line in _told(task.result, f"{name}: ")]
    first = next(iter(tasks))
    lines += [
        *_plot(run, "training"),
        *_usage(
            call("evaluate", model=run.model / first, data="FILE"),
            call("serve", str(run.path)),
        ),
        "",
        "`model/` has a directory for each task, a complete model; their encoders are the same.",
    ]
    return "\n".join(lines) + "\n"


def write_section(report: Path, heading: str, lines: Sequence[str]) -> None:
    """Write the last section of a report, in place of an earlier one with the same heading."""
    before = report.read_text(encoding="utf8", errors="replace").partition(heading)[0].rstrip()
    replace_file(report, "\n".join([before, "", heading, "", *lines, ""]).encode())


def _usage(*commands: str) -> list[str]:
    """Return a section of commands."""
    return ["", "Usage:", "", "```", *commands, "```"]


def _by_label(scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a table of the scores of each label, or of each type of entity; none if there are none."""
    if not scores:
        return []
    columns = list(next(iter(scores.values())))
    lines = ["", f"| label | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for label, values in scores.items():
        formats = {"examples": ",.0f", "cross_entropy": ".3f", "brier": ".3f"}
        cells = [f"{value:{formats.get(name, '.1f')}}" for name, value in values.items()]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return lines


def _plot(run: RunDirectory, name: str) -> list[str]:
    """Return the lines that show a plot, or none if it was not drawn."""
    return ["", f"![{name}](plots/{name}.svg)"] if (run.plots / f"{name}.svg").exists() else []


def _totals(run: RunDirectory, progress: RunProgress) -> str:
    """Return what the run did, and what it used until now, over all starts of the program."""
    text = f"{counted(progress.step, 'step')}, {progress.tokens:,} tokens, {duration(progress.seconds)} in steps"
    rate = progress.tokens / progress.seconds if progress.seconds else 0
    skipped = f"; {progress.skipped} steps were not finite and were skipped" if progress.skipped else ""
    run.save_usage()
    used = describe_usage(run.read_usage())
    return f"{text} ({rate:,.0f} tokens/s){skipped}." + (f" Used: {used}." if used else "")


def _number(value: float | None) -> str:
    """Return a metric with four decimals; None stands for a value that is not finite."""
    return "not finite" if value is None else f"{value:.4f}"


def _is_metric(name: str) -> Any:
    return name == "loss" or name.endswith(("_loss", "_accuracy", "_agreement"))
