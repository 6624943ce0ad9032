"""Errors for users: one line with the place, the problem and the remedy."""

import math
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from unmask.support.errors import (
    ShareNote,
    UnmaskError,
    UserError,
    check_count,
    counted,
    nearest,
    refuse_idle,
    refuse_string,
)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "wrong"),
        ({"file": ""}, "wrong"),
        ({"file": "a.tsv"}, "a.tsv: wrong"),
        ({"file": Path("a.tsv"), "line": 3}, "a.tsv:3: wrong"),
        ({"file": "a.tsv", "remedy": "fix it"}, "a.tsv: wrong; fix it"),
        ({"line": 3, "remedy": "fix it"}, "wrong; fix it"),
    ],
)
def test_the_message_names_file_line_and_remedy(options, text):
    assert str(UserError("wrong", **options)) == text


@pytest.mark.parametrize(
    ("reason", "parameters", "text"),
    [
        ("without data", {"columns": {"text": "0"}, "format": None}, "columns has no effect without data; omit it"),
        (": it is text", {"columns": {"a": "b"}, "depth": 3}, "columns, depth have no effect: it is text; omit them"),
    ],
)
def test_parameters_without_effect_are_refused(reason, parameters, text):
    with pytest.raises(UserError) as caught:
        refuse_idle(reason, **parameters)
    assert str(caught.value) == text
    refuse_idle(reason, **dict.fromkeys(parameters), strict=False, texts=(), number=0, encoding="")
    with pytest.raises(UserError, match=r"; pass another$"):
        refuse_idle(reason, "pass another", **parameters)


@pytest.mark.parametrize("number", [-1, 0, 5, 1000, 2.5, math.nan, "3"])
def test_numbers_outside_their_bounds_are_refused(number):
    whole = isinstance(number, int)
    for least, most, numbers in ((0, 4, "from 0 to 4"), (1, None, "of 1 or more"), (5, 1000, "from 5 to 1,000")):
        allowed = whole and number in range(least, 10_000 if most is None else most + 1)
        with (
            nullcontext() if allowed else pytest.raises(UserError, match=rf"^workers=.*: not a whole number {numbers}$")
        ):
            check_count("workers", number, least, most)
    check_count("workers", None)
    check_count("workers", np.int64(3), 1, 3)


def test_exit_statuses_differ():
    assert (UnmaskError.status, UserError.status) == (1, 2)
    assert issubclass(UserError, UnmaskError)


def test_numbers_with_their_noun():
    assert [counted(number, "document") for number in (0, 1, 2000)] == ["0 documents", "1 document", "2,000 documents"]


def test_the_most_similar_name_is_suggested_or_all_are_listed():
    assert nearest("bert-minni", ["bert-mini", "gpt-mini"]) == "did you mean 'bert-mini'?"
    assert nearest("xyz", ["b", "a"]) == "known: a, b"


def test_a_string_is_not_a_list_of_texts():
    refuse_string(["a", "b"])
    refuse_string(iter("ab"))
    with pytest.raises(UserError, match=r"^'a{40}' is one text; give an iterable of texts"):
        refuse_string("a" * 50)


@pytest.mark.parametrize(
    ("number", "total", "statement", "said"),
    [
        (1, 1, "texts are longer than 12 tokens and were cut", "1 of 1 text is longer than 12 tokens and was cut"),
        (1, 2, "queries have no passages", "1 of 2 queries has no passages"),
        (1, 1, "judged queries have no passages", "1 of 1 judged query has no passages"),
        (1, 1, "discontinuous spans have a gap", "1 of 1 discontinuous span has a gap"),
        (0, 1, "pairs of spans are empty", "0 of 1 pair of spans are empty"),
        (2, 1_000, "texts are empty", "2 of 1,000 texts are empty"),
    ],
)
def test_a_note_on_a_single_example_is_in_the_singular(number, total, statement, said):
    note = ShareNote(number, total, statement)
    assert note == said and note.statement == statement
