"""`unmask runs list FOLDER… | show RUN | plot RUN… --out FILE.png`: list, describe and plot runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from unmask.cli.options import add_action, print_lines, print_text
from unmask.support.errors import UserError, printable


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    listing = add_action(actions, "list", "print the runs in directories and their subdirectories, one per line")
    listing.add_argument("folders", nargs="+", metavar="FOLDER", help="run, or directory that contains runs")
    show = add_action(actions, "show", "describe a run: recipe and data, progress, and held-out metrics")
    show.add_argument("run", metavar="RUN", help="run directory, or directory of a fine-tuning with --seeds")
    plot = add_action(actions, "plot", "plot a metric of several runs: held-out values, and smoothed training values")
    plot.add_argument("runs", nargs="+", metavar="RUN", help="run directory")
    plot.add_argument(
        "--metric", default="loss", metavar="NAME", help="name of the metric in metrics.jsonl (default: loss)"
    )
    plot.add_argument(
        "--over", default="tokens", choices=("steps", "tokens", "minutes"), help="horizontal axis (default: tokens)"
    )
    plot.add_argument("--out", required=True, metavar="FILE.png", help="image to write")


def run(options: argparse.Namespace) -> None:
    """List, describe or plot runs."""
    from unmask.training.runs.plots import plot_runs
    from unmask.training.runs.summary import describe_run, describe_seeds, read_run, read_seeds

    if options.action == "list":
        _list([Path(folder) for folder in options.folders])
    elif options.action == "show":
        seeds = read_seeds(path := Path(options.run))
        print_lines(describe_seeds(path, seeds) if seeds else describe_run(read_run(path)))
    else:
        out = Path(options.out)
        if out.suffix != ".png":
            raise UserError("the plot is written as PNG", file=out, remedy="name it FILE.png")
        paths = []
        for path in map(Path, options.runs):
            seeds = read_seeds(path)
            paths += [path / name for name in seeds.seeds] if seeds else [path]
        plot_runs([read_run(path) for path in paths], out, metric=options.metric, over=options.over)
        print_text(f"plot: {out}", sys.stderr)


def _list(folders: list[Path]) -> None:
    from unmask.training.runs.summary import find_runs, list_runs, read_run

    runs, damaged = [], []
    for path in dict.fromkeys(path for folder in folders for path in find_runs(folder)):
        try:
            runs.append(read_run(path))
        except UserError as error:
            damaged.append(str(error))
    if not runs and not damaged:
        raise UserError(
            f"there is no run in {', '.join(map(str, folders))} or its subdirectories", remedy="name the --out of a run"
        )
    if runs:
        print_lines(list_runs(runs))
    if damaged:
        print_lines("\n  ".join([f"runs that cannot be read: {len(damaged)}", *map(printable, damaged)]), sys.stderr)
