"""`unmask evaluate`: score a fine-tuned model on labeled examples, or a pretrained encoder on plain text."""

from __future__ import annotations

import argparse
import time
from itertools import chain
from pathlib import Path
from typing import Any

from unmask.cli.options import (
    add_labelled,
    add_machine,
    add_model,
    add_text,
    machine,
    print_json,
    print_text,
    refuse_input,
    report,
    text_options,
)
from unmask.support.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model(parser)
    parser.add_argument(
        "--data",
        nargs="+",
        required=True,
        metavar="FILE",
        help="labeled examples for a fine-tuned model, raw text for a pretrained one; several files form one set",
    )
    add_labelled(parser)
    parser.add_argument(
        "--against",
        metavar="MODEL2",
        help="score a second model too, and test whether the differences are significant (paired bootstrap)",
    )
    parser.add_argument("--errors", metavar="FILE.html", help="write a page that shows the worst errors")
    add_text(parser)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    add_machine(parser, precision="float32")


def run(options: argparse.Namespace) -> None:
    """Score the model and print the metrics."""
    from unmask.data.labelled.labelled_file import parse_columns
    from unmask.inference.evaluation.evaluate import evaluate

    if options.errors:
        _check_page(Path(options.errors))
        refuse_input(Path(options.errors), options.data, "--errors")
    start = time.perf_counter()
    result = evaluate(
        options.model,
        options.data,
        columns=parse_columns(options.columns),
        kind=options.format,
        against=options.against,
        errors=options.errors,
        options=text_options(options),
        machine=machine(options),
        allow_pickle=options.allow_pickle,
        quiet=options.quiet,
    )
    for note in result.get("notes", []):
        report(options, note)
    result["seconds"] = round(time.perf_counter() - start, 3)
    if options.json:
        print_json(result)
        return
    print_text(f"{result['task']}: {result['examples']:,} examples, {result['seconds']:.1f} s")
    for name, value in result["metrics"].items():
        low, high = result["intervals"].get(name, (None, None))
        print_text(f"  {name:26} {value:.4g}" + ("" if low is None else f"  (95 %: {low:.4g} to {high:.4g})"))
    for name, value in result.get("calibration", {}).items():
        print_text(f"  {name:26} {value:.4g}")
    if scorer := result.get("scorer"):
        print_text(f"  scored by the rules of {scorer}")
    parts = (result.get(name, {}).items() for name in ("by_type", "by_kind", "by_domain"))
    for part, scores in chain.from_iterable(parts):
        print_text(f"  {part:26} " + ", ".join(f"{name} {value:.4g}" for name, value in scores.items()))
    if options.against:
        _print_differences(options.against, result)


def _check_page(path: Path) -> None:
    """Raise an error, before anything is computed, if the page of errors cannot be written or is not named as HTML."""
    if path.suffix != ".html":
        raise UserError("the page of errors is HTML", file=path, remedy="name it FILE.html")
    if not path.parent.is_dir():
        raise UserError("there is no such directory", file=path.parent, remedy="create it, or name another --errors")


def _print_differences(name: str, result: dict[str, Any]) -> None:
    """Print the second model's scores and the differences, one line per metric."""
    print_text(f"compared with {name}, by a paired bootstrap:")
    print_text(f"  {'':26} {'other model':12} {'this minus other [95 %]':32} p")
    for metric, found in result["against"]["differences"].items():
        low, high = found["interval"]
        value = result["against"]["metrics"][metric]
        difference = f"{found['difference']:+.4g} [{low:+.4g}, {high:+.4g}]"
        print_text(f"  {metric:26} {f'{value:.4g}':12} {difference:32} {found['p']:.2g}")
