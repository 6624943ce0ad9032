"""Recipes to choose from, and models to publish: `unmask recipes` and `unmask push`."""

from __future__ import annotations

import difflib
from pathlib import Path

from unmask.families.checkpoints.hub import upload
from unmask.model.directory import find, read_settings
from unmask.recipes.recipe import purpose, read_recipe, recipe_text, shipped
from unmask.support.choices import LabelNames
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.support.model_card import NAME, CardSettings, check_languages, check_license, complete_card
from unmask.support.settings import write_lines
from unmask.training.machine import choose_machine
from unmask.training.runs.display import Display
from unmask.workflows.pretraining.search import cost, training_speed


def list_recipes() -> str:
    """List the shipped recipes, with size, purpose, and the time that the budget takes here."""
    speed = training_speed(choose_machine())
    lines = [f"{'recipe':17} {'size':33} {'parameters':>10} {'time here':>11}  purpose"]
    for name in shipped():
        recipe = read_recipe(name)
        needed = cost(recipe)
        size = f"{needed.parameters / 1e6:.1f} M"
        lines.append(
            f"{name:17} {recipe.encoder.shape:33} {size:>10} {rough(needed.seconds(speed)):>11}  {purpose(name)}"
        )
    return "\n".join(lines)


def show_recipe(name: str | Path) -> str:
    """Show a recipe as TOML, for editing and passing as a file.

    Args:
        name: name of a shipped recipe or a .toml file.

    Raises:
        UserError: there is no such recipe.
    """
    return recipe_text(name)[0]


def diff_recipes(first: str | Path, second: str | Path) -> str:
    """Compare two recipes: the settings in which they differ, one KEY=VALUE per line.

    Args:
        first: name of a shipped recipe or a .toml file.
        second: likewise.

    Raises:
        UserError: there is no such recipe, or it is not valid.
    """
    old, new = (write_lines(read_recipe(name)) for name in (first, second))
    lines = difflib.unified_diff(old, new, str(first), str(second), lineterm="", n=0)
    return "\n".join(line for line in lines if not line.startswith("@@"))  # each line names its table


def push(
    directory: str | Path,
    name: str,
    *,
    license: str | None = None,
    language: LabelNames | None = None,
    private: bool = False,
    quiet: bool = False,
) -> str:
    """Upload a model with its card to the Hugging Face Hub.

    Args:
        directory: run directory, or Hugging Face model directory.
        name: repository on the Hub, NAMESPACE/NAME; created if it does not exist.
        license: identifier of the license of the model, such as apache-2.0, which is written to its card.
        language: codes of its languages (ISO 639), such as en,de, which are written to its card.
        private: create a private repository.
        quiet: print only results and errors.

    Returns:
        The address of what was uploaded.

    Raises:
        UserError: there is no model, it has no card, the license or a language is unknown, or the Hub refuses it.
    """
    if not Path(directory).is_dir():
        raise UserError(f"no directory '{directory}'", remedy="give a run or the directory of a model")
    folder = find(directory)
    read_settings(folder)
    if not (folder / NAME).is_file():
        raise UserError("has no card", file=folder / NAME, remedy="describe the model in it, and push again")
    display = Display(quiet=quiet)
    given = CardSettings(
        license=None if license is None else check_license(license),
        language=None if language is None else check_languages(language),
    )
    metadata = complete_card(folder, given)
    address = upload(folder, name, private=private)
    for key, what in (("license", "apache-2.0"), ("language", "en")):
        if not metadata.get(key):
            display.say(f"the card names no {key}: push again with {argument(key, what)}")
    display.say(f"uploaded: {address}")
    return address


def rough(seconds: float) -> str:
    """Return a duration in its largest unit."""
    years, days, hours = seconds / 31_557_600, seconds / 86_400, seconds / 3600
    if years >= 1:
        return f"{years:,.0f} years"
    if days >= 2:
        return f"{days:.0f} days"
    return f"{hours:.0f} h" if hours >= 2 else f"{seconds / 60:.0f} min"
