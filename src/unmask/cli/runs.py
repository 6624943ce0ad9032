"""`unmask runs list FOLDER… | show RUN | plot RUN… --out FILE.png`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from unmask.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    verbs = parser.add_subparsers(dest="action", required=True)
    listing = verbs.add_parser("list", help="the runs at and below folders, one a line")
    listing.add_argument("folders", nargs="+", metavar="FOLDER")
    show = verbs.add_parser("show", help="what was trained on what, how far it has come, how good it is")
    show.add_argument("run", metavar="RUN")
    plot = verbs.add_parser("plot", help="draw a metric of several runs: held out, and smoothed in training")
    plot.add_argument("runs", nargs="+", metavar="RUN")
    plot.add_argument("--metric", default="loss", metavar="NAME", help="as in metrics.jsonl (default: loss)")
    plot.add_argument("--over", default="tokens", choices=("steps", "tokens", "minutes"), help="default: tokens")
    plot.add_argument("--out", required=True, metavar="FILE.png")


def run(options: argparse.Namespace) -> None:
    """List, describe or draw."""
    from unmask.runs.overview import describe_run, describe_seeds
    from unmask.runs.plots import plot_runs
    from unmask.runs.summary import read_run, read_seeds

    if options.action == "list":
        _list([Path(folder) for folder in options.folders])
    elif options.action == "show":
        seeds = read_seeds(path := Path(options.run))
        print(describe_seeds(path, seeds) if seeds else describe_run(read_run(path)))
    else:
        out = Path(options.out)
        if out.suffix != ".png":
            raise UserError("a picture is written as PNG", file=out, remedy="name it FILE.png")
        paths = []
        for path in map(Path, options.runs):
            seeds = read_seeds(path)
            paths += [path / name for name in seeds.seeds] if seeds else [path]
        plot_runs([read_run(path) for path in paths], out, metric=options.metric, over=options.over)
        print(f"picture: {out}", file=sys.stderr)


def _list(folders: list[Path]) -> None:
    from unmask.runs.overview import list_runs
    from unmask.runs.summary import find_runs, read_run

    runs, damaged = [], []
    for path in dict.fromkeys(path for folder in folders for path in find_runs(folder)):
        try:
            runs.append(read_run(path))
        except UserError as error:
            damaged.append(str(error))
    if not runs and not damaged:
        raise UserError(f"no run lies in {', '.join(map(str, folders))} or below", remedy="name the --out of a run")
    if runs:
        print(list_runs(runs))
    if damaged:
        print(f"left out, as they cannot be read: {len(damaged)}", *damaged, sep="\n  ", file=sys.stderr)
