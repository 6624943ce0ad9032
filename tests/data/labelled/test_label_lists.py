"""Several labels of a text in cells and lists; what could be read in two ways is refused."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled.columns import Fields
from unmask.data.labelled.label_cells import LabelCells
from unmask.data.labelled.labelled_file import parse_columns, read_rows
from unmask.data.labelled.table import as_sources
from unmask.support.errors import UserError


def test_labels_of_cells_and_of_lists_are_read_alike(tmp_path):
    (tmp_path / "a.tsv").write_text("text\tlabels\none\tjoy, fear\ntwo\t\nthree\t7\n")
    (tmp_path / "a.csv").write_text('text,labels\none,"joy,fear"\ntwo,\nthree,7\n')
    lines = [
        '{"text": "one", "labels": ["joy", "fear"]}',
        '{"text": "two", "labels": []}',
        '{"text": "three", "labels": 7}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    for name in ("a.tsv", "a.csv", "a.jsonl"):
        rows = read_rows([tmp_path / name], columns={}, fields=Fields(several=True))
        assert [row.labels for row in rows] == [("joy", "fear"), (), ("7",)]
        assert [row.values for row in rows] == [{"text": "one"}, {"text": "two"}, {"text": "three"}]
        assert all(
            row.labels is None
            for row in read_rows([tmp_path / name], columns={}, fields=Fields(several=True), gold=False)
        )


def test_names_with_separators_are_read_from_lists():
    assert LabelCells("a.jsonl").of_value(["salt, pepper", "a|b"], 1) == ("salt, pepper", "a|b")


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("a;b", r'contains .;., which may separate labels; if it does, pass .*"separator": ";"'),
        ("a\nb", "contains a line break, which may separate labels; separate labels by ','"),
        ("a|b", r"contains '\|', which may separate labels"),
        ("a,,b", "one of the labels is empty; remove it"),
        ("a,b,a", "a label occurs twice in a, b, a"),
        (
            "salt (sea, rock), oil",
            r"'salt \(sea, rock\), oil' has a ',' inside of brackets or quotation marks: 'salt \(sea'",
        ),
        ('"salt, oil", joy', "'\"salt'; for a name that contains ',', use lists in JSON Lines"),
        ("array(['joy', 'fear'], dtype=object)", "inside of brackets"),
        ("{('a', 'b'), 'c'}", "inside of brackets"),
        ("{['a', 'b'], 'c'}", "inside of brackets"),
    ],
)
def test_ambiguous_cells_are_refused(cell, message):
    with pytest.raises(UserError, match=rf"(?s)^x\.tsv:3: .*{message}"):
        LabelCells("x.tsv").split(cell, 3)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_another_separator_is_read_if_it_is_named(tmp_path, name):
    cells = ["Tax | Breach, material", "Tax", "", "Lease; Tax|Law"]
    frame = pd.DataFrame({"text": list("abcd"), "label": cells})
    path = tmp_path / name
    frame.to_csv(path, index=False) if name == "a.csv" else frame.to_json(path, orient="records", lines=True)
    rows = read_rows([path], columns={"separator": "|"}, fields=Fields(several=True))
    assert [row.labels for row in rows] == [("Tax", "Breach, material"), ("Tax",), (), ("Lease; Tax", "Law")]


def test_a_separator_without_effect_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\none,x\n")
    assert parse_columns("text=body,label=a,b,separator=|") == {"text": "body", "label": "a,b", "separator": "|"}
    for several, gold in ((False, True), (True, False)):
        with pytest.raises(UserError, match="has no effect"):
            read_rows([tmp_path / "a.csv"], columns={"separator": "|"}, fields=Fields(several=several), gold=gold)
    for separator in ("and", "[", '"', " "):
        with pytest.raises(UserError, match="cannot separate labels"):
            read_rows([tmp_path / "a.csv"], columns={"separator": separator}, fields=Fields(several=True))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a,b", "the label 'a,b' may be several; make it a list"),
        ([["a"]], "'label' contains list, not names"),
        ([False], "'label' contains bool, not names"),
        (None, "'label' is missing"),
        (["a", " a"], "a label occurs twice"),
        ([""], "one of the labels is empty"),
    ],
)
def test_other_values_are_refused(value, message):
    with pytest.raises(UserError, match=message):
        LabelCells("x.jsonl").of_value(value, 3)


LISTS = st.lists(st.text("abc é'\"\\", min_size=1).map(str.strip).filter(bool), unique=True, max_size=5)


@given(LISTS, st.sampled_from([repr, json.dumps, lambda names: json.dumps(names, ensure_ascii=False)]))
def test_lists_in_cells_are_what_python_and_json_read(names, write):
    assert LabelCells("x.csv").split(f" {write(names)}", 2) == tuple(names)


@given(LISTS, st.booleans())
def test_tuples_and_sets_in_cells_are_what_python_reads(names, is_set):
    cell = repr(set(names) if is_set else tuple(names))
    assert LabelCells("x.csv").split(cell, 2) == tuple(sorted(names) if is_set else names)


@pytest.mark.parametrize("cell", ["(none)", "{x}", "settled", "(a), (b)", ":)", "('a')"])
def test_names_may_have_brackets(cell):
    assert LabelCells("x.csv").split(cell, 2) == tuple(name.strip() for name in cell.split(","))


@pytest.mark.parametrize(
    "cell", ["[joy]", "['joy'", "[", "['joy'], ['fear']", "[1, [2]]", "[True]", "[" * 5000, "[None]"]
)
def test_what_begins_like_a_list_and_is_none_is_refused(cell):
    with pytest.raises(UserError, match=r"^x\.csv:2: "):
        LabelCells("x.csv").split(cell, 2)


@given(
    st.integers(2, 6).flatmap(
        lambda size: st.lists(st.lists(st.integers(0, 1), min_size=size, max_size=size), min_size=1)
    )
)
def test_zeros_and_ones_are_labels_by_position(rows):
    matrix = np.array(rows)
    expected = [tuple(map(str, np.flatnonzero(row).tolist())) for row in matrix]
    cells, records = LabelCells("x.csv"), LabelCells("x.jsonl")
    assert [cells.split(str(row), 2) for row in rows] == expected
    assert [records.of_value(row, 2) for row in rows] == expected


@pytest.mark.parametrize("later", [[0, 1], [2, 0, 1], ["a", "b", "c"], []])
def test_rows_of_zeros_and_ones_are_all_of_that_kind(later):
    cells = LabelCells("x.jsonl")
    assert cells.of_value([0, 1, 1], 1) == ("1", "2")
    with pytest.raises(UserError, match=r"x\.jsonl:2: the first list of labels has 3 zeros or ones"):
        cells.of_value(later, 2)


def test_lists_of_numbers_that_are_names_stay_names():
    cells = LabelCells("x.jsonl")
    assert cells.of_value([3, 1], 1) == ("3", "1")
    assert cells.of_value([0, 1], 2) == ("0", "1")


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_header_that_occurs_again_is_refused(name, tmp_path):
    between = "," if name == "a.csv" else "\t"
    lines = [between.join(row) for row in (("text", "label"), ("a", "x"), ("b", "y"), ("text", "label"), ("c", "x"))]
    (tmp_path / name).write_text("\n".join(lines))
    with pytest.raises(UserError, match=rf"{name}:4: the header of line 1 occurs again; remove the line"):
        read_rows([tmp_path / name], columns={})


def test_a_row_equal_to_the_header_is_read_where_there_is_none(tmp_path):
    (tmp_path / "a.tsv").write_text("b\tlabel\na\tx\nb\tlabel\n")
    rows = read_rows([tmp_path / "a.tsv"], columns={"text": "0", "label": "1"})
    assert [row.values["label"] for row in rows] == ["label", "x", "label"]


@pytest.mark.parametrize("header", ["text\tlabel", "Tweet\t Sentiment", "question1\tis_duplicate"])
def test_a_header_is_no_example_where_columns_are_numbers(header, tmp_path):
    (tmp_path / "a.tsv").write_text(f"{header}\na\tx\n")
    with pytest.raises(UserError, match=r"a\.tsv:1: the first row is a header, \w+, \w+, which would be an example"):
        read_rows([tmp_path / "a.tsv"], columns={"text": "0", "label": "1"})
    (tmp_path / "a.tsv").write_text("text\tx\nlabel\ty\n")  # values that are also names of columns
    assert len(read_rows([tmp_path / "a.tsv"], columns={"text": "0", "label": "1"})) == 2


@pytest.mark.parametrize("several", [False, True])
def test_a_first_row_that_may_be_a_header_is_noted(tmp_path, several):
    fields, columns = Fields(several=several), {"text": "0", "label": "1"}
    for name, first in (("a.csv", "body,rating"), ("b.csv", "d,good")):
        (tmp_path / name).write_text(f"{first}\na,good\nb,bad\nc,good\n")
    notes = []
    rows = read_rows([tmp_path / "a.csv", tmp_path / "b.csv"], columns=columns, fields=fields, notes=notes)
    assert len(rows) == 8
    assert notes == [f"{tmp_path / 'a.csv'}:1: the label 'rating' occurs nowhere else: is the row a header?"]
    for content in ("a,x\nb,y\n", "a,4.5\nb,3\nc,3\n"):  # no label occurs twice; it is a number
        (tmp_path / "c.csv").write_text(content)
        notes = []
        read_rows([tmp_path / "c.csv"], columns=columns, fields=fields, notes=notes)
        assert notes == []


KEYS = st.lists(
    st.tuples(st.sampled_from(["text", "review", "content"]), st.sampled_from(["label", "class", "sentiment"])),
    min_size=1,
    max_size=5,
)


@given(KEYS)
def test_the_columns_of_records_are_those_of_the_first(tmp_path_factory, keys):
    path = tmp_path_factory.mktemp("records") / "a.jsonl"
    path.write_text("".join(f'{{"{text}": "a", "{label}": "x"}}\n' for text, label in keys))
    odd = next((number for number, pair in enumerate(keys) if pair != keys[0]), None)
    if odd is None:
        assert len(read_rows([path], columns={})) == len(keys)
    else:
        message = rf"a\.jsonl:{odd + 1}: the (text|label) was read from '.*' before, and would be"
        with pytest.raises(UserError, match=message):
            read_rows([path], columns={})


@pytest.mark.parametrize("value", ["nan", "NaN", "<NA>", "NaT"])
def test_missing_labels_of_data_frames_are_refused(value, tmp_path):
    (tmp_path / "a.csv").write_text(f"text,label\na,x\nb,{value}\n")
    for several in (False, True):
        with pytest.raises(UserError, match=rf"a\.csv:3: the label is '{value}', which data frames write"):
            read_rows([tmp_path / "a.csv"], columns={}, fields=Fields(several=several))


def test_spaces_before_quoted_cells_are_not_part_of_them(tmp_path):
    (tmp_path / "a.csv").write_text('text, label\n"a, b", "good"\nc, bad\n')
    assert [row.values for row in read_rows([tmp_path / "a.csv"], columns={})] == [
        {"text": "a, b", "label": "good"},
        {"text": "c", "label": "bad"},
    ]


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT, np.float64("nan")], ids=repr)
def test_missing_values_in_memory_are_named(missing):
    for several in (False, True):
        table = as_sources([{"text": "a", "label": "x"}, {"text": "b", "label": missing}])
        with pytest.raises(UserError, match=r":2: 'label' is missing"):
            read_rows(table, columns={}, fields=Fields(several=several))
