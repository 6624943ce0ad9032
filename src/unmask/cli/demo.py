"""`unmask demo`: the whole line with nothing but this package."""

from __future__ import annotations

import argparse
from pathlib import Path


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--out", default="demo", metavar="DIR", help="default: demo")


def run(options: argparse.Namespace) -> None:
    """Run it."""
    from unmask.demo import run as demonstrate

    demonstrate(Path(options.out))
