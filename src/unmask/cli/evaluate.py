"""`unmask evaluate`: a classifier on labelled examples, a pretrained encoder on plain text."""

from __future__ import annotations

import argparse
import time

from unmask.cli.options import add_labelled, add_machine, add_model, add_text, machine, print_json, report, text_options
from unmask.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model(parser)
    parser.add_argument("--data", nargs="+", required=True, metavar="FILE", help="labelled examples, or plain text")
    add_labelled(parser)
    add_text(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_machine(parser, precision="float32", quiet=False)


def run(options: argparse.Namespace) -> None:
    """Score and print."""
    from unmask.evaluation.model import evaluate_encoder, evaluate_task
    from unmask.model import load_model
    from unmask.tasks.labelled_file import parse_columns
    from unmask.text.documents import TextOptions

    model = load_model(options.model, allow_pickle=options.allow_pickle)
    begun = time.perf_counter()
    if model.task:
        if text_options(options) != TextOptions():
            raise UserError("--field, --documents and --strict have no effect: the model is fine-tuned for a task")
        result = evaluate_task(
            model,
            options.data,
            columns=parse_columns(options.columns),
            kind=options.format,
            machine=machine(options),
            report=lambda text: report(options, text),
        )
    else:
        if options.columns or options.format:
            raise UserError(
                "--columns and --format have no effect: the model is fine-tuned for no task, so the data is text"
            )
        result = evaluate_encoder(model, options.data, options=text_options(options), machine=machine(options))
    result["seconds"] = round(time.perf_counter() - begun, 3)
    if options.json:
        print_json(result)
        return
    print(f"{result['task']}: {result['examples']:,} examples, {result['seconds']:.1f} s")
    if "scorer" in result:
        print(f"  by the rules of {result['scorer']}")
    for name, value in result["metrics"].items():
        low, high = result["intervals"].get(name, (None, None))
        print(f"  {name:24} {value:.4g}" + ("" if low is None else f"  (95 %: {low:.4g} to {high:.4g})"))
    for name in ("answerable", "unanswerable"):
        if name in result:
            print(f"  {name}: " + ", ".join(f"{metric} {value:.4g}" for metric, value in result[name].items()))
