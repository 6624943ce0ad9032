"""`unmask recipes list | show NAME | diff A B`."""

from __future__ import annotations

import argparse
import difflib


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    verbs = parser.add_subparsers(dest="action", required=True)
    verbs.add_parser("list", help="one a line")
    show = verbs.add_parser("show", help="print a recipe, to be edited and passed as a file")
    show.add_argument("name", metavar="NAME")
    diff = verbs.add_parser("diff", help="what two recipes differ in, as --set takes it, every setting resolved")
    diff.add_argument("first", metavar="A")
    diff.add_argument("second", metavar="B")


def run(options: argparse.Namespace) -> None:
    """Print."""
    from unmask.recipe import read_recipe, recipe_text, shipped
    from unmask.settings import write_lines

    if options.action == "list":
        for name in shipped():
            encoder = read_recipe(name).encoder
            print(f"{name:16} {encoder.shape}")
    elif options.action == "show":
        print(recipe_text(options.name)[0], end="")
    else:
        first, second = (write_lines(read_recipe(name)) for name in (options.first, options.second))
        for line in difflib.unified_diff(first, second, options.first, options.second, lineterm="", n=0):
            if not line.startswith("@@"):  # each line says its table
                print(line)
