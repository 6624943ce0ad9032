"""The schema of recipes: it has every setting, and accepts what recipes contain."""

import json
import re
import tomllib

import msgspec

from unmask.cli.main import main
from unmask.recipes.recipe import FinetuningRecipe, Recipe, read_recipe, recipe_schema, recipe_text, shipped


def properties(schema, name):
    return schema["$defs"][name]["properties"]


def test_it_has_all_settings_and_no_null():
    schema = recipe_schema()
    for kind in (Recipe, FinetuningRecipe):
        assert set(properties(schema, kind.__name__)) == {field.name for field in msgspec.structs.fields(kind)}
    assert not re.search(r"\bnull\b(?=[,}\]])", json.dumps(schema))
    assert {"const": False} in properties(schema, "FinetuningRecipe")["dropout"]["anyOf"]
    assert (schema["then"]["$ref"], schema["else"]["$ref"]) == ("#/$defs/FinetuningRecipe", "#/$defs/Recipe")


def test_the_keys_of_shipped_recipes_are_in_it():
    schema = recipe_schema()
    assert "task" not in properties(schema, "Recipe")
    for name in shipped():
        table = tomllib.loads(recipe_text(name)[0])
        assert table.keys() <= properties(schema, "Recipe").keys()
        assert table["optimizer"].keys() <= properties(schema, type(read_recipe(name).optimizer).__name__).keys()


def test_an_optimizer_without_a_kind_is_adamw(tmp_path):
    lines = recipe_text("bert-tiny")[0].splitlines()
    start = lines.index("[optimizer]")
    del lines[next(number for number, line in enumerate(lines) if number > start and line.startswith("kind"))]
    path = tmp_path / "recipe.toml"
    path.write_text("\n".join(lines))
    assert read_recipe(path).optimizer.kind == "adamw"
    assert "required" not in recipe_schema()["$defs"]["AdamWSettings"]


def test_the_command_prints_it(capsys):
    main(["recipes", "schema"])
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(recipe_schema()))
