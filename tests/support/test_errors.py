"""Errors for users: one line with the place, the problem and the remedy."""

from pathlib import Path

import pytest

from unmask.support.errors import UnmaskError, UserError, counted, nearest, refuse_idle, refuse_string


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
