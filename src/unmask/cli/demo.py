"""`unmask demo`: from raw text to a classifier, using only this package."""

from __future__ import annotations

import argparse
from pathlib import Path


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--out", default="demo", metavar="DIR", help="directory for everything that is written (default: demo)"
    )


def run(options: argparse.Namespace) -> None:
    """Run the demonstration."""
    from unmask.demo.demonstration import run as demonstrate

    demonstrate(Path(options.out))
