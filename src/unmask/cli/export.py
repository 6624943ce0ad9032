"""`unmask export`: write a model in the format of another program."""

from __future__ import annotations

import argparse
from pathlib import Path

from unmask.cli.options import add_model, add_quiet, report
from unmask.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "format", choices=("allennlp",), help="options.json and weights.hdf5, as AllenNLP reads an ELMo (needs h5py)"
    )
    add_model(parser)
    parser.add_argument("--out", required=True, metavar="DIR", help="new directory")
    add_quiet(parser)


def run(options: argparse.Namespace) -> None:
    """Write the files."""
    from unmask.checkpoints.allennlp import write
    from unmask.model import load_model

    out = Path(options.out)
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UserError("the directory is not empty", file=out, remedy="choose another --out")
    model = load_model(options.model, allow_pickle=options.allow_pickle)
    write(out, model.encoder, model.tokenizer.tokens(range(model.tokenizer.size)))
    if model.heads:
        report(options, f"not in this format, and left out: {', '.join(sorted(model.heads))}")
    report(options, f"AllenNLP's files: {out}")
