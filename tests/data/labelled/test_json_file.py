"""JSON files: errors name the location, the line and the format."""

import re

import pytest

from unmask.data.labelled.json_file import Place, claim, decode_json, decode_object
from unmask.support.errors import UserError

TOP = Place("data.json", form="QuAC")


def test_a_location_is_a_path_through_the_file():
    place = TOP.inner("article 1").inner("question 2").named("id q")
    with pytest.raises(UserError, match=r"data\.json: article 1, question 2 \(id q\): no answer; add one"):
        place.refuse("no answer", "add one")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({}, "'text' is missing; files must be in QuAC format"),
        ({"text": 3}, "'text' is int, not str"),
        ({"text": " "}, "the text is empty; fix or remove it"),
    ],
)
def test_what_is_wrong_with_a_value_is_named(record, message):
    with pytest.raises(UserError, match=message):
        TOP.text(record, "text")


def test_lists_hold_objects():
    found = list(TOP.each({"turns": [{"a": 1}, {}]}, "turns", "turn"))
    assert [(place.path, value) for place, value in found] == [("turn 1", {"a": 1}), ("turn 2", {})]
    with pytest.raises(UserError, match="turn 1: int, not an object"):
        list(TOP.each({"turns": [1]}, "turns", "turn"))


def test_an_id_belongs_to_one_location():
    seen = {}
    claim(seen, "q", TOP.inner("question 1"))
    with pytest.raises(UserError, match="question 2: the id 'q' is also that of question 1; ids must be unique"):
        claim(seen, "q", TOP.inner("question 2"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1", r"data\.json: broken JSON .*; a file in QuAC format is a single JSON value"),
        (b"[]", "list, not an object with 'data'; files must be in QuAC format"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "data.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        decode_object(path, TOP, "data")


def test_a_byte_order_mark_is_dropped(tmp_path):
    path = tmp_path / "data.json"
    path.write_bytes(b"\xef\xbb\xbf[1]")
    assert decode_json(path, TOP) == [1]
    assert re.match("files must", TOP.remedy)
