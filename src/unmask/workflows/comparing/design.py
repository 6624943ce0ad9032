"""Factors of a comparison: settings whose values are combined, so that the effect of each can be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal

from unmask.metrics.comparison.effects import fractional_grid, full_grid, one_factor_at_a_time
from unmask.support.errors import UserError, nearest
from unmask.support.messages import argument
from unmask.support.settings import parse_overrides

Factors = Mapping[str, Sequence[Any]]
"""Values by factor, the first of each being the baseline."""
Design = Literal["full", "single", "fraction"]
"""All combinations, one factor at a time, or the smallest fraction of all that keeps main effects apart."""
MAX_ARMS = 1_000
"""Maximum number of arms of a comparison."""
DESIGNS = {"full": full_grid, "single": one_factor_at_a_time, "fraction": fractional_grid}


def _pairs(second: str, objective: str, other: str) -> dict[str, Any]:
    """Return the settings of sentence pairs in the second half of a run, as in bert-mini."""
    first = {"share": 0.5, "layout": {"kind": "document_sentences"}, "objective": {objective: False}}
    return {
        "layout.kind": "sentence_pairs",
        "layout.second": second,
        "layout.single_probability": 0.0,
        f"objective.{other}": False,
        f"objective.{objective}.weight": 1.0,
        "stages": [first, {"share": 0.5}],
    }


SHORT: dict[str, dict[str, dict[str, Any]]] = {
    "pair": {
        "none": {
            "stages": [],
            "layout.kind": "document_sentences",
            "objective.next_sentence": False,
            "objective.sentence_order": False,
        },
        "next_sentence": _pairs("random", "next_sentence", "sentence_order"),
        "sentence_order": _pairs("swapped", "sentence_order", "next_sentence"),
    },
    "masking": {kind: {"masking.kind": kind} for kind in ("token", "span", "ngram")},
}
"""Factors that are known by a name, with the settings of each value; others are settings themselves."""


def combined(factors: Factors, design: Design) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the settings of each combination of values.

    Raises:
        UserError: a factor has fewer than two values, a value is unknown, named twice, or a list or a table, there are
            too many combinations, or the design is for two values only.
    """
    for factor, values in factors.items():
        if len(values) < 2:
            raise UserError(f"{argument('vary', factor)}: at least two values are needed")
        if not all(isinstance(value, str | int | float) for value in values):
            raise UserError(f"{argument('vary', factor)}: lists and tables cannot be varied", remedy="vary a value")
        if repeated := [value for value in values if values.count(value) > 1]:
            raise UserError(f"{argument('vary', factor)}: {repeated[0]} is named twice", remedy="remove one of them")
    sizes = [len(values) for values in factors.values()]
    if (prod(sizes) if design == "full" else sum(sizes)) > MAX_ARMS:
        raise UserError(
            f"{argument('vary')}: more than {MAX_ARMS:,} combinations",
            remedy="vary fewer factors, or one at a time: design = 'single'",
        )
    settings: dict[tuple[Any, ...], dict[str, Any]] = {}
    for values in DESIGNS[design]({name: tuple(values) for name, values in factors.items()}):
        settings[values] = {}
        for factor, value in zip(factors, values, strict=True):
            settings[values] |= _of_value(factor, value)
    return settings


def name_of(factors: Factors, values: Sequence[Any]) -> str:
    """Return the name of the arm with these values of the factors."""
    return ",".join(f"{factor}={value}" for factor, value in zip(factors, values, strict=True))


def _of_value(factor: str, value: Any) -> dict[str, Any]:
    """Return the settings of a value of a factor."""
    if factor not in SHORT:
        return {factor: value}
    if value not in SHORT[factor]:
        remedy = nearest(str(value), SHORT[factor])
        raise UserError(f"{argument('vary', factor)}: unknown value '{value}'", remedy=remedy)
    return SHORT[factor][value]


def read_factors(words: Sequence[str]) -> dict[str, list[Any]]:
    """Return factors from words such as "masking=token,span".

    Raises:
        UserError: a word is not of this form.
    """
    factors: dict[str, list[Any]] = {}
    for word in words:
        factor, equals, values = word.partition("=")
        if not equals or not factor:
            raise UserError(f"{argument('vary', word)}: not FACTOR=VALUE,VALUE", remedy="write masking=token,span")
        if factor in factors:
            raise UserError(f"{argument('vary', word)}: {factor} is varied twice", remedy="name all values at once")
        factors[factor] = [parse_overrides([f"x={value}"])["x"] for value in values.split(",")]
    return factors
