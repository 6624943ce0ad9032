"""`unmask features`: write an encoder's hidden states for each token of texts."""

from __future__ import annotations

import argparse

from unmask.cli.options import RANDOM_TOKENIZER, add_labelled, add_machine, add_model, machine


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
    from unmask.data.labelled.labelled_file import parse_columns
    from unmask.inference.commands import write_features
    from unmask.inference.features import parse_layers

    write_features(
        options.model,
        options.data,
        parse_layers(options.layers),
        options.out,
        columns=parse_columns(options.columns),
        kind=options.format,
        tokenizer=options.tokenizer,
        machine=machine(options),
        allow_pickle=options.allow_pickle,
        quiet=options.quiet,
    )
