"""Settings: parsed, merged into tables, converted into typed values, and written; unknown keys get a suggestion."""

import re
import tomllib
from typing import Literal

import msgspec
import pytest

from unmask.recipes.recipe import FinetuningRecipe, Recipe, read_recipe
from unmask.support.errors import UserError
from unmask.support.settings import (
    check_overrides,
    convert,
    parse_overrides,
    put,
    with_minutes,
    write,
    write_line,
    write_lines,
)
from unmask.training.settings import BatchSettings, BudgetSettings


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("encoder.layer=3", "unknown key `layer`.*`encoder`; did you mean 'layers'?"),
        ("optimiser.clip=1", "unknown key `optimiser`; did you mean 'optimizer'?"),
        ("masking.replace.msk=1", "unknown key `msk`.*did you mean 'mask'?"),
        ("objective.masked_ml.weight=1", "unknown key `masked_ml`.*did you mean 'masked_lm'?"),
        (
            "masking.longest=3",
            "unknown key `longest` - at `masking`; it requires masking.kind = ngram or span or permutation$",
        ),
        ("zzz=1", "unknown key `zzz`; known: batch, budget, card, encoder, .*, seed, stages, tokenizer$"),
        ("encoder.lenght=3", "unknown key `lenght` - at `encoder`; known: activation, .*, width$"),
        ("optimizer.lr=1", "unknown key `lr` - at `optimizer`; known: average, .*, weight_decay$"),
        ("learning_rate=3", r"unknown key `learning_rate`; did you mean 'optimizer\.learning_rate'\?$"),
        ("optimizer.dropout=0.5", r"at `optimizer`; did you mean 'encoder\.dropout'\?$"),
    ],
)
def test_the_error_for_an_unknown_key_suggests_a_similar_one(setting, message):
    with pytest.raises(UserError, match=message) as error:
        read_recipe("bert-tiny", parse_overrides([setting]))
    assert str(error.value).startswith("recipe bert-tiny: ")


@pytest.mark.parametrize("label", ["1", "-7", "0", "3rd", "no"])
def test_labels_that_are_numbers_need_no_quotes(label):
    """A positive label 1 was refused: it must be text."""
    table = {"task": {"kind": "classification"}, "batch": {"sequences": 4}, "budget": {"epochs": 1.0}}
    table |= {"optimizer": {"kind": "adamw"}, "schedule": {"kind": "linear", "warmup": 0.1}}
    for settings in (parse_overrides([f"task.positive={label}"]), parse_overrides([f'task.positive="{label}"'])):
        recipe = convert(put(table, settings, FinetuningRecipe), FinetuningRecipe, "test")
        assert recipe.task.positive == label
    with pytest.raises(UserError, match=r"task\.positive must be text, not true"):
        convert(put(table, {"task.positive": True}, FinetuningRecipe), FinetuningRecipe, "test")


def test_false_unsets_optional_keys():
    changed = ["encoder.head_dropout=0.3", "objective.sentence_order.weight=1", "budget.steps=7"]
    unset = ["encoder.head_dropout=false", "objective.sentence_order=false", "budget.tokens=false"]
    assert read_recipe("bert-tiny", parse_overrides([*changed, *unset])) == read_recipe(
        "bert-tiny", parse_overrides(["budget.steps=7"])
    )
    assert read_recipe(
        "bert-tiny", parse_overrides(["objective.masked_lm=false", "objective.masked_lm.weight=1"])
    ).objectives.keys() == {
        "masked_lm",
        "next_sentence",
    }


def test_one_unit_replaces_the_other():
    recipe = read_recipe("bert-tiny", parse_overrides(["budget.steps=7", "batch.sequences=3", "batch.micro_tokens=99"]))
    assert recipe.budget == BudgetSettings(steps=7)
    both = put({"budget": {"epochs": 3.0}}, parse_overrides(["budget.patience=2"]), Recipe)
    assert both == {"budget": {"epochs": 3.0, "patience": 2}}
    assert recipe.batch == BatchSettings(sequences=3, micro_tokens=99)
    recipe = read_recipe(
        "bert-tiny", parse_overrides(["budget.steps=7", "budget.tokens=1e6", "batch.sequences=3", "batch.tokens=64"])
    )
    assert (recipe.budget.steps, recipe.budget.tokens) == (None, 1e6)
    assert (recipe.batch.sequences, recipe.batch.tokens) == (None, 64)


def test_values_are_toml_and_quotes_are_optional():
    table = put({"a": {"b": 1, "c": 2}}, parse_overrides(["a.b=x y", 'a.d="7"', "e.f=[1, 2]", "g=true", "h="]), Recipe)
    assert table == {"a": {"b": "x y", "c": 2, "d": "7"}, "e": {"f": [1, 2]}, "g": True, "h": ""}


def test_the_table_that_settings_override_is_unchanged():
    before = {"budget": {"steps": 1}, "layout": {"kind": "a", "length": 3}}
    put(before, parse_overrides(["budget.tokens=3", "layout.kind=b", "layout.length=5"]), Recipe)
    assert before == {"budget": {"steps": 1}, "layout": {"kind": "a", "length": 3}}


def test_another_layout_keeps_only_the_length():
    settings = ["layout.length=64", "layout.kind=document_sentences", "objective.next_sentence=false"]
    recipe = read_recipe("bert-tiny", parse_overrides(settings))
    assert msgspec.to_builtins(recipe.layout) == {"kind": "document_sentences", "length": 64}
    assert list(recipe.objectives) == ["masked_lm"]
    again = read_recipe("bert-tiny", parse_overrides(["layout.kind=sentence_pairs", "layout.second=random"]))
    assert again.layout.length == 128


def test_another_schedule_keeps_only_the_warm_up():
    stable = ["schedule.warmup=0.2", "schedule.kind=warmup_stable_decay", "schedule.decay=0.1"]
    schedule = read_recipe("bert-tiny", parse_overrides(stable)).schedule
    assert (schedule.kind, schedule.warmup, schedule.decay) == ("warmup_stable_decay", 0.2, 0.1)
    schedule = read_recipe("bert-tiny", parse_overrides([*stable, "schedule.kind=cosine"])).schedule
    assert (schedule.kind, schedule.warmup, schedule.decay) == ("cosine", 0.2, None)
    assert (
        read_recipe("bert-tiny", parse_overrides([*stable, "schedule.kind=warmup_stable_decay"])).schedule.decay == 0.1
    )


def test_settings_that_are_not_set_are_omitted():
    recipe = convert(
        {
            "task": {"kind": "classification"},
            "batch": {"tokens": 5},
            "optimizer": {"kind": "adamw"},
            "schedule": {},
            "budget": {"epochs": 2},
        },
        FinetuningRecipe,
        "x",
    )
    table = tomllib.loads(write(recipe))
    assert "dropout" not in table
    assert table["budget"] == {"epochs": 2.0}
    assert table["optimizer"]["betas"] == [0.9, 0.999]
    assert convert(table, FinetuningRecipe, "x") == recipe


def test_the_last_of_two_settings_counts():
    assert parse_overrides(["seed=1", "budget.steps=2", "seed=3"]) == {"budget.steps": 2, "seed": 3}
    assert list(parse_overrides(["seed=1", "budget.steps=2", "seed=3"])) == ["budget.steps", "seed"]
    assert list(parse_overrides(["seed=1", "budget.steps=2", "seed=1"])) == ["seed", "budget.steps"]


def test_settings_are_typed_values():
    recipe = read_recipe("bert-tiny", {"budget.minutes": 3, "optimizer.betas": (0.8, 0.9), "masking.kind": "span"})
    text = ["budget.minutes=3", "optimizer.betas=[0.8, 0.9]", "masking.kind=span"]
    assert recipe == read_recipe("bert-tiny", parse_overrides(text))
    assert recipe.budget == BudgetSettings(minutes=3)


@pytest.mark.parametrize(
    ("settings", "written"),
    [
        (["seed=1", "masking.kind=span"], "not list; write {'seed': 1, 'masking.kind': 'span'}"),
        ("budget.steps=7", "not str; write {'budget.steps': 7}"),
        ([3], "not list; write {'budget.steps': 100}"),
    ],
)
def test_text_in_place_of_a_mapping_is_refused(settings, written):
    with pytest.raises(UserError, match=re.escape(f"settings must be a mapping from keys to values, {written}")):
        read_recipe("bert-tiny", settings)


def test_settings_are_written_as_lines_that_are_read_again():
    assert write_line("budget.steps", None) == "budget.steps=false"
    assert write_line("name", "a b") == "name=a b"
    assert write_line("stages", [{"share": 1.0, "length": None}]) == "stages=[{share=1.0}]"
    recipe = read_recipe("bert-tiny")
    lines = write_lines(recipe)
    assert {"encoder.layers=2", "encoder.head_dropout=false", "objective.next_sentence.weight=1.0"} <= set(lines)
    assert not any(line.startswith("budget.tokens") for line in lines), "another unit of the budget is set"
    assert read_recipe("bert-mini", parse_overrides(lines)) == recipe


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    size: int = 1


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    inner: Inner
    flag: bool = True
    rate: float | None = None
    kind: Literal["a", "b"] = "a"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, r"here: the table \[inner\] is missing; add it, as in the output of `unmask recipes show bert-mini`$"),
        ({"inner": {"size": "x"}}, r"here: inner\.size must be a whole number, not 'x'$"),
        ({"inner": {"size": 2.0}}, r"here: inner\.size must be a whole number, not 2\.0; write 2$"),
        ({"inner": {}, "size": 1}, r"here: unknown key `size`; did you mean 'inner\.size'\?$"),
        ({"inner": {}, "kind": "c"}, "here: kind cannot be 'c'; known: a, b$"),
        ({"inner": {}, "flag": 1}, "here: flag must be true or false, not 1$"),
    ],
)
def test_tables_that_do_not_match_are_refused(table, message):
    with pytest.raises(UserError, match=message):
        convert(table, Outer, "here")


def test_false_unsets_what_is_optional_and_is_a_value_elsewhere():
    assert convert({"inner": {}, "flag": False, "rate": False}, Outer, "here") == Outer(Inner(), flag=False)


def test_a_mapping_of_settings_is_accepted():
    check_overrides({})
    with pytest.raises(UserError, match="settings must be a mapping from keys to values, not NoneType"):
        check_overrides(None)


def test_a_time_is_given_once():
    assert with_minutes({"a": 1}, "budget.minutes", 5) == {"budget.minutes": 5, "a": 1}
    assert with_minutes({"budget.minutes": 3}, "budget.minutes", None) == {"budget.minutes": 3}
    with pytest.raises(
        UserError, match=r"minutes=5 and settings=\{.budget.minutes.: 3\} are the same setting; remove one of them"
    ):
        with_minutes({"budget.minutes": 3}, "budget.minutes", 5)
