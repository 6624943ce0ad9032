"""The JSON Schema of recipes, from their types, with which editors complete and check TOML files."""

from __future__ import annotations

from typing import Any

import msgspec

from unmask.recipes.recipe import FinetuningRecipe, Recipe


def recipe_schema() -> dict[str, Any]:
    """Return the schema of recipes: those of fine-tuning are recognized by their [task].

    Where a setting may be unset, the schema has `false` for it, as recipes do, because TOML has no null.
    """
    (pretraining, finetuning), components = msgspec.json.schema_components(
        (Recipe, FinetuningRecipe), ref_template="#/$defs/{name}"
    )
    del components["AdamWSettings"]["required"]  # the `kind` of the optimizer, which has a default
    schema: dict[str, Any] = _without_null(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Recipe of unmask",
            "type": "object",
            "if": {"required": ["task"]},
            "then": finetuning,
            "else": pretraining,
            "$defs": components,
        }
    )
    return schema


def _without_null(value: Any) -> Any:
    """Return a schema in which false takes the place of null."""
    if isinstance(value, list):
        return [_without_null(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value == {"type": "null"}:
        return {"const": False}
    return {name: _without_null(inner) for name, inner in value.items() if inner is not None}
