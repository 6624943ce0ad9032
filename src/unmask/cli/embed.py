"""`unmask embed`: write one vector per text."""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

from unmask.cli.options import add_labelled, add_machine, add_model, machine, report
from unmask.support.errors import InputWarning, UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model(parser)
    parser.add_argument(
        "--data",
        required=True,
        metavar="FILE",
        help=".tsv, .csv or .jsonl file with a column of texts, or .txt file with one text per line",
    )
    add_labelled(parser, "txt")
    parser.add_argument("--pooling", choices=("mean", "cls"), help="mean of all tokens, or the first (default: own)")
    parser.add_argument(
        "--normalize",
        action=argparse.BooleanOptionalAction,
        help="divide vectors by their norm (default: as the model specifies, otherwise yes)",
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="new .npy or .safetensors file")
    add_machine(parser, precision="float32")


def run(options: argparse.Namespace) -> None:
    """Compute the vectors and write them."""
    from unmask.data.labelled.labelled_file import parse_columns
    from unmask.inference.features import check_target, write_vectors
    from unmask.inference.predictor import open_predictor
    from unmask.tasks.tagged import read_unlabeled
    from unmask.training.runs.display import Display

    out, columns = Path(options.out), parse_columns(options.columns)
    check_target(out)
    notes: list[str] = []
    rows = read_unlabeled(options.data, columns=columns, kind=options.format, notes=notes)
    if "text_b" in rows[0].values:
        raise UserError("vectors are of single texts, but these are pairs", remedy="pass --columns text=NAME")
    texts = [row.values["text"] for row in rows]
    display = Display(quiet=options.quiet)
    predictor = open_predictor(options.model, machine(options), display, allow_pickle=options.allow_pickle)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", InputWarning)
        vectors = predictor.embed(texts, pooling=options.pooling, normalize=options.normalize)
    notes += [str(one.message) for one in found if issubclass(one.category, InputWarning)]
    write_vectors(out, vectors, predictor.fingerprint())
    for note in notes:
        report(options, note)
    report(options, f"{len(texts):,} vectors of {vectors.shape[1]} numbers: {out}")
