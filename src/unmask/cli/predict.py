"""`unmask predict`: ask a fine-tuned model, from the command line or from a file."""

from __future__ import annotations

import argparse
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
    parser.add_argument("--question", metavar="TEXT", help="to be answered from --passage")
    parser.add_argument("--passage", metavar="TEXT")
    parser.add_argument(
        "--data",
        metavar="FILE",
        help=".tsv, .csv or .jsonl with columns of texts; .txt: one a line; questions: .json of SQuAD's format",
    )
    add_labelled(parser)
    parser.add_argument(
        "--out", metavar="FILE", help="write JSON Lines there (questions: {id: answer}, and FILE.nbest.json)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    add_machine(parser, precision="float32")


def run(options: argparse.Namespace) -> None:
    """Ask and print."""
    from unmask.model import load_model
    from unmask.serving.pipeline import Pipeline

    asked = options.question is not None or options.passage is not None
    if sum(map(bool, (options.texts, options.data, asked))) != 1:
        raise UserError("give texts, --question and --passage, or --data FILE, one of the three")
    if asked and (options.question is None or options.passage is None):
        raise UserError("--question and --passage go together")
    if options.out and options.json:
        raise UserError("--json has no effect with --out, which writes JSON anyway")
    if not options.data and (options.columns or options.format):
        raise UserError("--columns and --format have no effect without --data")
    if options.text_b and not options.texts:
        raise UserError("--text-b has no effect without TEXT (pairs of a file stand in two columns)")
    model = load_model(options.model, allow_pickle=options.allow_pickle)
    predictions = _ask(Pipeline(model, machine(options)), options)
    if options.out:
        _write(Path(options.out), predictions)
        report(options, f"{len(predictions)} predictions: {options.out}")
        return
    for prediction in predictions:
        if options.json:
            print_json(prediction)
        else:
            print(_line(prediction))


def _write(path: Path, predictions: Sequence[Any]) -> None:
    """Write JSON Lines, or of answers to questions the official {id: answer} and, beside it, what else was probable."""
    if not hasattr(predictions[0], "nbest"):
        path.write_bytes(b"".join(msgspec.json.encode(prediction) + b"\n" for prediction in predictions))
        return
    for target, name in ((path, "answer"), (path.with_name(f"{path.name}.nbest.json"), "nbest")):
        content = {prediction.id: getattr(prediction, name) for prediction in predictions}
        target.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")


def _ask(pipeline: Pipeline, options: argparse.Namespace) -> list[Any]:
    from unmask.tasks.labelled_file import parse_columns, read_texts

    if options.texts:
        return pipeline.predict(options.texts, options.text_b or None)
    if options.question is not None:
        return [pipeline.answer(options.question, options.passage, lambda text: report(options, text))]
    columns = parse_columns(options.columns)
    if options.format is None and ".txt" in Path(options.data).suffixes:
        return pipeline.predict(read_texts(options.data, columns=columns))
    task = pipeline.model.task
    if task is None:
        return pipeline.predict([])
    examples = task.read([options.data], columns=columns, kind=options.format, gold=False)
    return pipeline.run(examples, lambda text: report(options, text))


def _line(prediction: Any) -> str:
    """Return what a person wants to see: the answer, how sure it is, the text."""
    if hasattr(prediction, "nbest"):
        return f"{prediction.answer}\t{prediction.probability:.3f}\t{prediction.question}"
    texts = "\t".join(text for text in (prediction.text, prediction.text_b) if text is not None)
    if hasattr(prediction, "score"):
        return f"{prediction.score:.3f}\t{texts}"
    return f"{prediction.label}\t{prediction.scores[prediction.label]:.3f}\t{texts}"
