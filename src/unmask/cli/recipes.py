"""`unmask recipes list | show NAME | diff A B | migrate FILE...`."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path

from unmask.errors import UserError


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    verbs = parser.add_subparsers(dest="action", required=True)
    verbs.add_parser("list", help="one a line")
    show = verbs.add_parser("show", help="print a recipe, to be edited and passed as a file")
    show.add_argument("name", metavar="NAME")
    diff = verbs.add_parser("diff", help="what two recipes differ in, as --set takes it, every setting resolved")
    diff.add_argument("first", metavar="A")
    diff.add_argument("second", metavar="B")
    migrate = verbs.add_parser("migrate", help="rewrite recipes of earlier versions as recipes of this one")
    migrate.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a recipe, or a run (its recipe.toml)")
    migrate.add_argument("--out", type=Path, metavar="FILE", help="write there; else in place, with a copy FILE.old")


def run(options: argparse.Namespace) -> None:
    """Print."""
    from unmask.recipe import migrate_file, read_recipe, recipe_text, shipped
    from unmask.settings import write_lines

    if options.action == "list":
        for name in shipped():
            encoder = read_recipe(name).encoder
            print(f"{name:16} {encoder.shape}")
    elif options.action == "show":
        print(recipe_text(options.name)[0], end="")
    elif options.action == "migrate":
        if options.out is not None and len(options.files) > 1:
            raise UserError("--out takes one recipe", remedy="migrate them one after the other")
        for path in options.files:
            changes = migrate_file(path, options.out)
            print(f"{path}: " + ("; ".join(changes) or "is of this version: left as it is"))
    else:
        first, second = (write_lines(read_recipe(name)) for name in (options.first, options.second))
        for line in difflib.unified_diff(first, second, options.first, options.second, lineterm="", n=0):
            if not line.startswith("@@"):  # each line says its table
                print(line)
