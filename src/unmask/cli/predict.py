"""`unmask predict`: predictions of a fine-tuned model for texts on the command line or in a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.cli.options import (
    add_labelled,
    add_machine,
    add_model,
    machine,
    print_json,
    print_text,
    refuse_input,
    report,
)
from unmask.support.errors import UserError

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model(parser)
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="text to classify, score or find entities in")
    parser.add_argument("--question", metavar="TEXT", help="question to answer from --passage")
    parser.add_argument(
        "--passage", nargs="+", metavar="TEXT", help="text that holds the answer to --question (hotpotqa: texts)"
    )
    parser.add_argument("--title", nargs="+", default=[], metavar="TEXT", help="titles of the texts (hotpotqa)")
    parser.add_argument("--choices", nargs="+", metavar="TEXT", help="texts to choose from, about --passage")
    parser.add_argument(
        "--history",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="earlier questions of the dialogue, each followed by its answer, the oldest first (quac, coqa)",
    )
    parser.add_argument(
        "--text-b",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="second text of each pair, for models trained on pairs of texts",
    )
    parser.add_argument(
        "--data",
        metavar="FILE",
        help="file of examples as for evaluate, whose labels are not read, or .txt file with one text per line (for "
        "models trained on pairs, .txt is read as .tsv)",
    )
    add_labelled(parser, "txt")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write the predictions to a file as JSON Lines (token-classification: CoNLL columns if it ends in .conll, "
        ".tsv or .txt; question-answering: one JSON object {id: answer}, with the best alternatives in "
        "FILE.nbest.json)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue the predictions that an interrupted run has begun in --out"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per prediction")
    add_machine(parser, precision="float32")


def run(options: argparse.Namespace) -> None:
    """Compute the predictions and print or write them."""
    from unmask.inference.predictor import open_predictor
    from unmask.inference.stream import save_predictions
    from unmask.training.runs.display import Display

    _check(options)
    shown = Display(quiet=options.quiet)
    predictor = open_predictor(options.model, machine(options), shown, allow_pickle=options.allow_pickle)
    notes: list[str] = []
    if options.data and options.out:
        _stream(predictor, options)
        return
    examples = _examples(predictor, options, notes)
    predictions = predictor.run(examples, notes)
    for note in notes:
        report(options, note)
    if options.out:
        save_predictions(predictor.task, Path(options.out), examples, predictions)
        report(options, f"{len(predictions)} predictions: {options.out}")
        return
    for prediction in predictions:
        if options.json:
            print_json(prediction)
        else:
            print_text(predictor.task.line(prediction))


def _stream(predictor: Predictor, options: argparse.Namespace) -> None:
    """Write predictions as they are computed, whatever the size of the file."""
    from unmask.data.labelled.labelled_file import parse_columns
    from unmask.inference.stream import identity, write_predictions

    notes: list[str] = []
    columns = parse_columns(options.columns)
    examples = predictor.iterate(options.data, columns=columns, kind=options.format, notes=notes)
    about = identity(options.model, options.data, columns=columns, format=options.format, precision=options.precision)
    count = write_predictions(predictor, examples, Path(options.out), about, resume=options.resume, notes=notes)
    for note in notes:
        report(options, note)
    report(options, f"{count} predictions: {options.out}")


def _check(options: argparse.Namespace) -> None:
    asked = options.question is not None or options.passage is not None
    if sum(map(bool, (options.texts, options.data, asked))) != 1:
        raise UserError("give exactly one of: texts, --question with --passage, --data FILE")
    if options.choices and (options.passage is None or options.history or options.title):
        raise UserError("--choices goes with --passage and, if there is one, --question")
    if asked and not options.choices and (options.question is None or options.passage is None):
        raise UserError("--question and --passage must be given together")
    for name in ("history", "title"):
        if getattr(options, name) and not asked:
            raise UserError(f"--{name} has no effect without --question and --passage")
    if options.title and len(set(options.title)) != len(options.passage):
        raise UserError(f"{len(set(options.title))} distinct titles of {len(options.passage)} passages")
    if len(options.history) % 2:
        raise UserError("--history needs an answer after each question", remedy='give "" for an answer that is missing')
    if options.out and options.json:
        raise UserError("--json has no effect with --out, which writes JSON in any case", remedy="omit it")
    if not options.data and (options.columns or options.format):
        raise UserError("--columns and --format have no effect without --data")
    if options.out and Path(options.out).suffix in (".gz", ".xz", ".zst"):
        raise UserError("predictions are not written compressed", file=options.out, remedy="omit the suffix")
    if options.out:
        _check_out(Path(options.out), options.data)
    if options.resume and not (options.out and options.data):
        raise UserError("--resume has no effect without --data and --out")
    if options.text_b and not options.texts:
        raise UserError("--text-b has no effect without TEXT (pairs in a file are two columns)")


def _check_out(out: Path, data: str | None) -> None:
    """Raise an error early if the output cannot be written, or would overwrite the input."""
    for written in (out, out.with_name(f"{out.name}.nbest.json")):
        refuse_input(written, [data] if data else [], "--out")
    if out.is_dir():
        raise UserError("--out is a directory", file=out, remedy="name a file")
    if not out.parent.is_dir():
        raise UserError("there is no such directory", file=out.parent, remedy="create it, or name another --out")


def _examples(predictor: Predictor, options: argparse.Namespace, notes: list[str]) -> list[Any]:
    from unmask.data.labelled.labelled_file import parse_columns

    if options.choices:
        return [predictor.choices(" ".join(options.passage), options.choices, options.question or "")]
    if options.question is not None:
        history = list(zip(options.history[::2], options.history[1::2], strict=True))
        passages = dict(zip(options.title, options.passage, strict=True)) if options.title else options.passage
        return [predictor.question(options.question, passages, history)]
    if options.texts:
        return predictor.task.from_texts(options.texts, options.text_b or None)
    columns = parse_columns(options.columns)
    return predictor.read([options.data], columns=columns, kind=options.format, notes=notes)
