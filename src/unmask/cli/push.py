"""`unmask push`: upload a model with its card to the Hugging Face Hub."""

from __future__ import annotations

import argparse
from pathlib import Path

from unmask.cli.options import add_quiet, report
from unmask.support.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("directory", metavar="DIR", help="run directory, or Hugging Face model directory")
    parser.add_argument("name", metavar="NAMESPACE/NAME", help="repository on the Hub; created if it does not exist")
    parser.add_argument("--private", action="store_true", help="create a private repository")
    add_quiet(parser)


def run(options: argparse.Namespace) -> None:
    """Check the model, and upload its files."""
    from unmask.families.checkpoints.hub import CARD, upload
    from unmask.model.directory import find, read_settings

    if not Path(options.directory).is_dir():
        raise UserError(f"no directory '{options.directory}'", remedy="give a run or the directory of a model")
    folder = find(options.directory)
    read_settings(folder)
    if not (folder / CARD).is_file():
        raise UserError("has no card", file=folder / CARD, remedy="describe the model in it, and push again")
    report(options, f"uploaded: {upload(folder, options.name, private=options.private)}")
