"""Examples in memory: each kind of object yields the same records; what is no source is refused."""

import json
from pathlib import Path

import msgspec
import numpy
import pandas
import polars
import pyarrow
import pytest

from unmask.data.labelled.annotations import read_annotations
from unmask.data.labelled.columns import Fields
from unmask.data.labelled.labelled_file import read_rows
from unmask.data.labelled.table import as_sources, as_table, check_once, is_table
from unmask.support.errors import UserError

COLUMNS = {"text": ["good", "bad"], "label": ["yes", "no"]}


class Features(dict):
    """Features of a data set: a mapping with `to_dict`."""

    def to_dict(self):
        return dict(self)


class DataSet:
    """What is used of `datasets.Dataset`."""

    def __init__(self, columns, features):
        self.columns, self.column_names, self.features = columns, list(columns), Features(features)

    def __getitem__(self, name):
        return iter(self.columns[name])


LABEL = {"names": ["no", "yes"], "_type": "ClassLabel"}


@pytest.mark.parametrize(
    "data",
    [
        pandas.DataFrame(COLUMNS),
        pandas.DataFrame({"text": COLUMNS["text"], "label": pandas.Categorical(COLUMNS["label"])}),
        polars.DataFrame(COLUMNS),
        pyarrow.table(COLUMNS),
        COLUMNS,
        [{"text": "good", "label": "yes"}, {"text": "bad", "label": "no"}],
        (["good", "bad"], ("yes", "no")),
        (pandas.Series(["good", "bad"]), polars.Series(["yes", "no"])),
        DataSet({"text": ["good", "bad"], "label": [1, 0]}, {"label": LABEL}),
    ],
    ids=["pandas", "categories", "polars", "pyarrow", "columns", "records", "lists", "series", "datasets"],
)
def test_each_kind_of_object_is_the_same_rows(data):
    rows = read_rows(as_sources(data), columns={})
    assert [(row.line, *row.values.values()) for row in rows] == [(1, "good", "yes"), (2, "bad", "no")]
    assert rows[0].file.startswith("<")


def test_pairs_and_other_names_of_columns():
    (row,) = read_rows(as_sources((["a"], ["b"], [1])), columns={})
    assert row.values == {"text": "a", "text_b": "b", "label": "1"}
    (row,) = read_rows(
        [as_table(pandas.DataFrame({"said": ["a"], "n": [2.5]}))], columns={"text": "said", "label": "n"}
    )
    assert row.values == {"text": "a", "label": "2.5"}


@pytest.mark.parametrize("words", [[["a", "b"], ["c"]], pandas.Series([["a", "b"], ["c"]])])
def test_words_and_tags(words):
    sentences = read_annotations(as_sources((words, [["O", "B-X"], ["O"]])), columns={})
    assert [(one.words, one.tags, one.line) for one in sentences] == [(["a", "b"], ("O", "B-X"), 1), (["c"], ("O",), 2)]
    names = {"names": ["O", "B-X"], "_type": "ClassLabel"}
    data = DataSet({"tokens": [["a", "b"]], "ner_tags": [[0, 1]]}, {"ner_tags": {"feature": names, "_type": "List"}})
    assert read_annotations(as_sources(data), columns={})[0].tags == ("O", "B-X")


def test_errors_name_the_row_and_the_column():
    data = pandas.DataFrame({"text": ["a", " "], "label": [1, 2]})
    with pytest.raises(UserError, match="<DataFrame>:2: the text is empty"):
        read_rows(as_sources(data), columns={})
    data = polars.DataFrame({"said": ["a", None], "label": [1, 2]})
    with pytest.raises(UserError, match=r"<DataFrame>:2: 'text' \(column 'said'\) is missing"):
        read_rows(as_sources(data), columns={"text": "said"})
    data = pandas.DataFrame({"text": ["a", "b"], "label": [1, float("nan")]})
    with pytest.raises(UserError, match="<DataFrame>:2: 'label' is missing"):
        read_rows(as_sources(data), columns={})
    with pytest.raises(UserError, match="<dict>: there are no examples"):
        read_rows(as_sources({"text": [], "label": []}), columns={})


def test_a_text_may_have_several_labels():
    data = {"text": ["a", "b", "c"], "labels": [["x", "y"], [], "z"]}
    rows = read_rows(as_sources(data), columns={}, fields=Fields(several=True))
    assert [row.labels for row in rows] == [("x", "y"), (), ("z",)]
    assert all("label" not in row.values for row in rows)
    with pytest.raises(UserError, match=r"<dict>:1: 'label' \(column 'labels'\) is list, not text \(this task has one"):
        read_rows(as_sources(data), columns={})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "int is not a source of examples; pass paths, a data frame"),
        ([1, 2], "a sequence of int is not a source"),
        ((["a"], "b"), "a sequence of list is not"),
        ((["a", "b"], ["x"]), "different numbers of rows: text has 2, label has 1"),
        ({"text": "abc"}, "a column is str, not a sequence"),
        ({"text": {"a", "b"}, "label": ["x", "y"]}, "a column is set, not a sequence; pass a list, in the order"),
        ({"text": {0: "a"}, "label": {0: "x"}}, "a column is dict, not a sequence"),
        ({"train": DataSet({}, {}), "test": DataSet({}, {})}, "several splits; pass one of train, test"),
    ],
)
def test_what_is_no_source_is_refused(data, message):
    with pytest.raises(UserError, match=message):
        as_sources(data)


def test_a_file_given_twice_is_refused():
    check_once(["a.tsv", Path("b.tsv"), "a.db#x", "a.db#y", as_table({"text": ["a"]}), as_table({"text": ["a"]})])
    with pytest.raises(UserError, match=r"^b\.tsv: the file is given twice, so its examples would count twice; omit"):
        check_once(["a.tsv", "b.tsv", Path("./b.tsv")])


def test_other_columns_are_values_that_files_have():
    """Predictions are written beside them; what JSON has not is written as pandas writes it."""
    columns = {
        "time": pandas.to_datetime(["2020-01-02 03:04:05", None]),
        "length": pandas.to_timedelta(["1h", "2h"]),
        "month": pandas.period_range("2020-01", periods=2, freq="M"),
        "number": pandas.array([1, None], "Int64"),
        "mixed": [pandas.NA, numpy.int64(3)],
        "list": [numpy.array(["a", "b"]), ["c"]],
    }
    frame = pandas.DataFrame({"text": ["a", "b"], **columns})
    for source in (frame, frame.to_dict("records")):
        first, second = (row.source for row in read_rows(as_sources(source), columns={}, gold=False))
        assert json.loads(msgspec.json.encode([first, second])) == [first, second]
        assert [*first.values()] == ["a", "2020-01-02T03:04:05", "0 days 01:00:00", "2020-01", 1, None, ["a", "b"]]
        assert [*second.values()] == ["b", None, "0 days 02:00:00", "2020-02", None, 3, ["c"]]


@pytest.mark.parametrize("value", ["a\ud83d", ["b", "\ude00"]])
def test_lone_surrogates_are_named(value):
    with pytest.raises(UserError, match=r"<dict>:2: 'text': character \d is a lone surrogate"):
        list(as_table({"text": ["\U0001f600", value]}).records())


def test_paths_stay_paths_and_tables_are_recognized(tmp_path):
    assert as_sources("a.tsv") == ["a.tsv"]
    assert as_sources(("a.tsv", tmp_path)) == ["a.tsv", tmp_path]
    assert is_table(pandas.DataFrame()) and is_table({}) and not is_table(["a"]) and not is_table(pandas.Series(["a"]))
