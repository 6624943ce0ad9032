"""The vocabulary that all recipes of a comparison share, so that it is not what distinguishes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unmask.data.text.documents import Skipped, read_documents
from unmask.data.tokenizers.coverage import beginning, suited_vocabulary
from unmask.recipes.recipe import as_recipe
from unmask.support.settings import to_table
from unmask.workflows.comparing.settings import Arm, Comparison, errors_of


def shared_tokenizer(comparison: Comparison, arms: Mapping[str, Arm]) -> dict[str, Any] | None:
    """Return the settings of the tokenizer of the first recipe that reads subwords; None: no recipe does.

    Raises:
        UserError: there is no such recipe, a setting is unknown, or a text cannot be read.
    """
    for name, arm in arms.items():
        if arm.way in ("pretrain", "random") and arm.recipe:
            with errors_of(name):
                settings = suited_tokenizer(comparison, arm)
            if settings["kind"] != "words":
                return settings
    return None


def suited_tokenizer(comparison: Comparison, arm: Arm) -> dict[str, Any]:
    """Return the settings of the tokenizer of an arm's recipe.

    What the comparison and the arm leave open of a WordPiece tokenizer suits the text, as in `unmask.pretrain`.
    """
    named = {**comparison.settings, **arm.settings}
    settings = to_table(as_recipe(arm.recipe, named).tokenizer)
    left_open = [key for key in settings if f"tokenizer.{key}" not in named]
    if settings["kind"] == "wordpiece" and comparison.text and left_open:
        kind, size = suited_vocabulary(_beginnings(comparison), settings["vocabulary"])
        suited = {"kind": kind, "vocabulary": size, "lowercase": False}
        settings |= {key: suited[key] for key in left_open}
    return settings


def _beginnings(comparison: Comparison) -> Iterator[str]:
    """Yield the first documents of each text of a comparison."""
    for path in comparison.text:
        yield from beginning(read_documents([path], comparison.reading, Skipped()))
