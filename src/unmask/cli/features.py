"""`unmask features`: the layers of an encoder for each token of texts."""

from __future__ import annotations

import argparse
from pathlib import Path

from unmask.cli.options import add_labelled, add_machine, add_model, machine, report
from unmask.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_model(parser)
    parser.add_argument(
        "--data", required=True, metavar="FILE", help=".tsv, .csv or .jsonl with columns of texts; .txt: one a line"
    )
    add_labelled(parser)
    parser.add_argument(
        "--layers",
        nargs="+",
        required=True,
        metavar="LIST",
        help="0: the embeddings; -1: the last; several as -4 -3 -2 -1 or --layers=-4,-3,-2,-1",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="for features.safetensors")
    add_machine(parser, precision="float32")


def run(options: argparse.Namespace) -> None:
    """Compute and write."""
    from unmask.model import load_model
    from unmask.serving.features import FILE, parse_layers
    from unmask.serving.pipeline import Pipeline
    from unmask.tasks.labelled_file import Row, parse_columns, read_rows, read_texts

    out, layers, columns = Path(options.out), parse_layers(options.layers), parse_columns(options.columns)
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UserError("the directory is not empty", file=out, remedy="choose another --out")
    if options.format is None and ".txt" in Path(options.data).suffixes:
        rows = [Row({"text": text}, "", 0) for text in read_texts(options.data, columns=columns)]
    else:
        rows = read_rows([options.data], columns=columns, kind=options.format, gold=False)
    pipeline = Pipeline(load_model(options.model, allow_pickle=options.allow_pickle), machine(options))
    tokens, cut = pipeline.write_features(rows, layers, out / FILE)
    report(options, f"{tokens:,} tokens of {len(rows):,} texts: {out / FILE}")
    if cut:
        report(
            options, f"{cut:,} of them are longer than the {pipeline.encoder.longest} tokens of the model and were cut"
        )
