"""`unmask recipes list | show NAME | diff A B | schema`: print and compare recipes."""

from __future__ import annotations

import argparse
import difflib
import json
import sys

from unmask.cli.options import add_action, print_lines, print_text


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    actions = parser.add_subparsers(dest="action", required=True)
    add_action(
        actions,
        "list",
        "print the shipped recipes, with size, purpose, and the time that the budget takes here",
    )
    show = add_action(actions, "show", "print a recipe as TOML, for editing and passing as a file")
    show.add_argument("name", metavar="NAME", help="name of a shipped recipe or a .toml file")
    diff = add_action(actions, "diff", "print the settings in which two recipes differ, in the syntax of --set")
    diff.add_argument("first", metavar="A", help="name of a shipped recipe or a .toml file")
    diff.add_argument("second", metavar="B", help="likewise")
    add_action(actions, "schema", "print the JSON Schema of recipes, with which editors complete and check them")


def run(options: argparse.Namespace) -> None:
    """Print recipes."""
    from unmask.recipes.recipe import read_recipe, recipe_text
    from unmask.support.settings import write_lines

    if options.action == "list":
        print_lines("\n".join(_table()))
    elif options.action == "show":
        sys.stdout.write(recipe_text(options.name)[0])
    elif options.action == "schema":
        from unmask.recipes.schema import recipe_schema

        sys.stdout.write(json.dumps(recipe_schema(), indent=2) + "\n")
    else:
        first, second = (write_lines(read_recipe(name)) for name in (options.first, options.second))
        for line in difflib.unified_diff(first, second, options.first, options.second, lineterm="", n=0):
            if not line.startswith("@@"):  # each line names its table
                print_text(line)


def _table() -> list[str]:
    """Return the lines of `unmask recipes list`."""
    from unmask.recipes.recipe import purpose, read_recipe, shipped
    from unmask.training.machine import choose_machine
    from unmask.workflows.pretraining.search import cost, training_speed

    speed = training_speed(choose_machine())
    lines = [f"{'recipe':17} {'size':33} {'parameters':>10} {'time here':>11}  purpose"]
    for name in shipped():
        recipe = read_recipe(name)
        found = cost(recipe)
        size = f"{found.parameters / 1e6:.1f} M"
        lines.append(
            f"{name:17} {recipe.encoder.shape:33} {size:>10} {rough(found.seconds(speed)):>11}  {purpose(name)}"
        )
    return lines


def rough(seconds: float) -> str:
    """Return a duration in its largest unit."""
    years, days, hours = seconds / 31_557_600, seconds / 86_400, seconds / 3600
    if years >= 1:
        return f"{years:,.0f} years"
    if days >= 2:
        return f"{days:.0f} days"
    return f"{hours:.0f} h" if hours >= 2 else f"{seconds / 60:.0f} min"
