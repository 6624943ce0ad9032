"""Runs by their directories: list, describe and plot them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from unmask.support.choices import Files, as_files
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.training.runs.display import Display
from unmask.training.runs.plots import draw_runs
from unmask.training.runs.summary import find_runs, read_run, read_seeds, run_page, runs_table, seeds_page


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


def describe_run(run: str | Path) -> str:
    """Describe a run: recipe and data, progress, and held-out metrics.

    Args:
        run: run directory, or directory of a fine-tuning with several seeds.

    Raises:
        UserError: there is no run, or it is damaged.
    """
    seeds = read_seeds(Path(run))
    return seeds_page(Path(run), seeds) if seeds else run_page(read_run(run))


def plot_runs(
    runs: Files, out: str | Path, *, metric: str = "loss", over: Literal["steps", "tokens", "minutes"] = "tokens"
) -> None:
    """Plot a metric of several runs: held-out values, and smoothed training values.

    Args:
        runs: run directories.
        out: image to write, FILE.png.
        metric: name of the metric in metrics.jsonl.
        over: horizontal axis.

    Raises:
        UserError: there is no such run, it has not logged the metric, or matplotlib is not installed.
    """
    if Path(out).suffix != ".png":
        raise UserError("the plot is written as PNG", file=out, remedy="name it FILE.png")
    paths: list[Path] = []
    for path in map(Path, as_files(runs)):
        seeds = read_seeds(path)
        paths += [path / name for name in seeds.seeds] if seeds else [path]
    draw_runs([read_run(path) for path in paths], out, metric=metric, over=over)
    Display().say(f"plot: {out}")
