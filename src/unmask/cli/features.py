"""`unmask features`: write an encoder's hidden states for each token of texts."""

from __future__ import annotations

import argparse
from pathlib import Path

from unmask.cli.options import RANDOM_TOKENIZER, add_labelled, add_machine, add_model, machine, report
from unmask.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model(parser)
    parser.add_argument("--tokenizer", metavar="DIR", help=RANDOM_TOKENIZER)
    parser.add_argument(
        "--data",
        required=True,
        metavar="FILE",
        help=".tsv, .csv or .jsonl file with columns of texts or pairs, or .txt file with one text per line",
    )
    add_labelled(parser, "txt")
    parser.add_argument(
        "--layers",
        nargs="+",
        required=True,
        metavar="LIST",
        help="layers to write: 0 is the embeddings, -1 the last layer; several as -4 -3 -2 -1 or --layers=-4,-3,-2,-1",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="new directory for features.safetensors")
    add_machine(parser, precision="float32")


def run(options: argparse.Namespace) -> None:
    """Compute the hidden states and write them."""
    from unmask.inference.features import FILE, parse_layers
    from unmask.inference.predictor import Predictor
    from unmask.labelled.labelled_file import is_plain, parse_columns, read_rows, read_texts
    from unmask.model import load_model
    from unmask.runs.display import Display
    from unmask.tasks.rows import as_rows

    out, layers, columns = Path(options.out), parse_layers(options.layers), parse_columns(options.columns)
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UserError("the directory is not empty", file=out, remedy="choose another --out")
    notes: list[str] = []
    if is_plain(options.data, options.format):
        rows = as_rows(read_texts(options.data, columns=columns, notes=notes))
    else:
        rows = read_rows([options.data], columns=columns, kind=options.format, gold=False, notes=notes)
    model = load_model(options.model, tokenizer=options.tokenizer, allow_pickle=options.allow_pickle)
    predictor = Predictor(model, machine(options), Display(quiet=options.quiet))
    tokens, cut = predictor.write_features(rows, layers, out / FILE)
    for note in notes:
        report(options, note)
    report(options, f"{tokens:,} tokens of {len(rows):,} texts: {out / FILE}")
    if cut:
        report(options, f"{cut:,} texts are longer than the model's {model.encoder.longest} tokens and were truncated")
