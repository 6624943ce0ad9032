"""`unmask predict`: classify texts from the command line or from a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from unmask.cli.options import add_labelled, add_machine, add_model, machine, print_json
from unmask.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model(parser)
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--data", metavar="FILE", help=".tsv, .csv or .jsonl with a column of texts; .txt: one a line")
    add_labelled(parser)
    parser.add_argument("--out", metavar="FILE", help="write JSON Lines there")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    add_machine(parser, precision="float32")


def run(options: argparse.Namespace) -> None:
    """Classify and print."""
    from unmask.model import load_model
    from unmask.serving.pipeline import Pipeline
    from unmask.tasks.labelled_file import parse_columns, read_texts

    if bool(options.texts) == bool(options.data):
        raise UserError("give texts or --data FILE, one of the two")
    if options.out and options.json:
        raise UserError("--json has no effect with --out, which writes JSON Lines anyway")
    columns = parse_columns(options.columns)
    if options.texts and (columns or options.format):
        raise UserError("--columns and --format have no effect without --data")
    texts = options.texts or read_texts(options.data, columns=columns, kind=options.format)
    model = load_model(options.model, allow_pickle=options.allow_pickle)
    predictions = Pipeline(model, machine(options)).predict(texts)
    if options.out:
        lines = b"".join(msgspec.json.encode(prediction) + b"\n" for prediction in predictions)
        Path(options.out).write_bytes(lines)
        if not options.quiet:
            print(f"{len(predictions)} predictions: {options.out}", file=sys.stderr)
        return
    for prediction in predictions:
        if options.json:
            print_json(prediction)
        else:
            print(f"{prediction.label}\t{prediction.scores[prediction.label]:.3f}\t{prediction.text}")
