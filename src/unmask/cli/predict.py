"""`unmask predict`: ask a fine-tuned model, from the command line or from a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from unmask.cli.options import add_labelled, add_machine, add_model, machine, print_json, report
from unmask.errors import UserError

if TYPE_CHECKING:
    from unmask.serving.pipeline import Pipeline


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model(parser)
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--text-b", nargs="+", default=[], metavar="TEXT", help="the second text of each pair")
    parser.add_argument(
        "--data", metavar="FILE", help=".tsv, .csv or .jsonl with columns of texts, for tags CoNLL's; .txt: one a line"
    )
    add_labelled(parser)
    parser.add_argument(
        "--out", metavar="FILE", help="write JSON Lines there (tags: .conll, .tsv and .txt get columns)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    add_machine(parser, precision="float32")


def run(options: argparse.Namespace) -> None:
    """Ask and print."""
    from unmask.model import load_model
    from unmask.serving.pipeline import Pipeline

    if bool(options.texts) == bool(options.data):
        raise UserError("give texts or --data FILE, one of the two")
    if options.out and options.json:
        raise UserError("--json has no effect with --out, which writes JSON Lines anyway")
    if options.texts and (options.columns or options.format):
        raise UserError("--columns and --format have no effect without --data")
    if options.data and options.text_b:
        raise UserError("--text-b has no effect with --data, whose pairs stand in two columns")
    model = load_model(options.model, allow_pickle=options.allow_pickle)
    pipeline = Pipeline(model, machine(options))
    examples = _examples(pipeline, options)
    predictions = pipeline.run(examples)
    if options.out:
        Path(options.out).write_bytes(_encode(Path(options.out), examples, predictions))
        if not options.quiet:
            print(f"{len(predictions)} predictions: {options.out}", file=sys.stderr)
        return
    for prediction in predictions:
        if options.json:
            print_json(prediction)
        else:
            print(_line(prediction))


def _examples(pipeline: Pipeline, options: argparse.Namespace) -> list[Any]:
    from unmask.tasks.labelled_file import parse_columns, read_texts

    if options.texts:
        return pipeline.examples(options.texts, options.text_b or None)
    columns = parse_columns(options.columns)
    if options.format is None and ".txt" in Path(options.data).suffixes:
        return pipeline.examples(read_texts(options.data, columns=columns))
    task = pipeline.model.task
    if task is None:
        return pipeline.examples([])
    notes: list[str] = []
    examples = task.read([options.data], columns=columns, kind=options.format, gold=False, notes=notes)
    for note in notes:
        report(options, note)
    return examples


def _encode(path: Path, examples: Sequence[Any], predictions: Sequence[Any]) -> bytes:
    """Return what is written: JSON Lines or, of tagged words by the file's suffix, columns that `evaluate` reads."""
    from unmask.tasks.tagged_file import write_columns
    from unmask.tasks.token_classification import Tagged, tags_of

    if path.suffix not in (".conll", ".tsv", ".txt") or not all(isinstance(one, Tagged) for one in predictions):
        return b"".join(msgspec.json.encode(prediction) + b"\n" for prediction in predictions)
    pairs = zip(examples, predictions, strict=True)
    return "".join(write_columns(example, tags_of(example, prediction)) for example, prediction in pairs).encode()


def _line(prediction: Any) -> str:
    """Return what a person wants to see: the answer, how sure it is, the text."""
    if hasattr(prediction, "entities"):
        found = (f"{entity.label} {entity.probability:.3f} {entity.text}" for entity in prediction.entities)
        return "\t".join((prediction.text, *found))
    texts = "\t".join(text for text in (prediction.text, prediction.text_b) if text is not None)
    if hasattr(prediction, "score"):
        return f"{prediction.score:.3f}\t{texts}"
    return f"{prediction.label}\t{prediction.scores[prediction.label]:.3f}\t{texts}"
