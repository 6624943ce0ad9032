"""Lists and objects that programs wrote as text, where labels are: read right or refused, never names of classes."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled.columns import Fields
from unmask.data.labelled.label_cells import OTHERS, LabelCells, is_written, parse_collection
from unmask.data.labelled.labelled_file import read_rows
from unmask.data.labelled.table import as_sources
from unmask.support.errors import UserError

FIELDS = {"one": Fields(soft=True), "several": Fields(several=True, soft=True)}
ARRAYS = {
    "texts": [np.array(["joy", "fear"]), np.array(["joy"])],
    "long": [np.array([f"label {number}" for number in range(30)])],
    "probabilities": [np.array([0.25, 0.75]), np.array([1e-7, 1.0])],
    "missing": [{"joy": float("nan"), "fear": 1.0}],
    "numpy": [{"joy": np.float64(0.25), "fear": np.float64(0.75)}],
}


@pytest.mark.parametrize("task", FIELDS)
@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("form", ["csv", "tsv", "memory"])
def test_what_pandas_writes_of_arrays_and_numpy_is_no_name(tmp_path, task, name, form):
    values = ARRAYS[name]
    frame = pd.DataFrame({"text": [f"text {number}" for number in range(len(values))], "label": values})
    source = tmp_path / f"a.{form}"
    if form == "memory":
        source = as_sources(frame.assign(label=frame["label"].map(str)))[0]
    else:
        frame.to_csv(source, index=False, sep="\t" if form == "tsv" else ",")
    with pytest.raises(UserError, match=r":\d+: "):
        read_rows([source], columns={}, fields=FIELDS[task])


TEXTS = st.lists(st.text("ab '\"\\,", min_size=1, max_size=3), min_size=2, max_size=5)


@given(TEXTS, st.data(), st.sampled_from(["[]", "()"]))
def test_texts_without_a_comma_between_them_are_no_list(texts, data, brackets):
    between = [data.draw(st.sampled_from([", ", ",\n ", " ", "\n ", ""])) for _ in texts[1:]]
    written = "".join(repr(text) + space for text, space in zip(texts, [*between, ""], strict=True))
    found = parse_collection(f"{brackets[0]}{written}{brackets[1]}")
    if all("," in space for space in between):
        assert list(found) == texts
    else:
        assert found is None


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "memory"])
def test_a_vector_with_a_single_one_is_no_vote(tmp_path, form):
    vectors = [[0, 1, 0], [1, 0, 0], [0, 1, 0]]
    frame = pd.DataFrame({"text": ["a", "b", "c"], "label": vectors})

    def source():
        path = tmp_path / f"a.{form}"
        if form == "memory":
            return as_sources(frame)[0]
        if form == "csv":
            frame.to_csv(path, index=False)
        elif form == "jsonl":
            frame.to_json(path, orient="records", lines=True)
        else:
            frame.to_parquet(path)
        return path

    with pytest.raises(UserError, match=r":[12]: the label is a list, and each list of the file has a single 1 among"):
        read_rows([source()], columns={}, fields=FIELDS["one"])
    assert [row.labels for row in read_rows([source()], columns={}, fields=FIELDS["several"])] == [
        ("1",),
        ("0",),
        ("1",),
    ]
    frame.at[2, "label"] = [0, 0, 0]  # votes of three annotators on two classes
    rows = read_rows([source()], columns={}, fields=FIELDS["one"])
    assert [row.probabilities.get("1", 0) for row in rows] == pytest.approx([1 / 3, 1 / 3, 0])


@pytest.mark.parametrize("mark", OTHERS)
def test_marks_that_separate_labels_elsewhere_are_refused_in_cells_and_in_records(mark):
    with pytest.raises(UserError, match=r"(?s)a\.csv:2: .*which may separate labels"):
        LabelCells("a.csv").split(f"joy{mark}fear", 2)
    with pytest.raises(UserError, match=r"(?s)a\.jsonl:2: the label .* may be several; make it a list"):
        LabelCells("a.jsonl").of_value(f"joy{mark}fear", 2)
    assert LabelCells("a.jsonl").of_value([f"joy{mark}fear"], 2) == (f"joy{mark}fear",)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        *(
            (text, False)
            for text in ("[urgent]", "{x", "[1]", "(a, b)", "[don't know]", "{other}", "[A 1]", "[]", "[", "f(x)")
        ),
        *((json.dumps(value), True) for value in (["a"], [1, 0], [0.5, 0.5], {"a": 1}, {"a": None})),
        *((text, True) for text in ("[0. 1.]", "[nan 1.0]", "['a' 'b']", "{a: 1}", "[ 1\n 2]", "('a', 'b')")),
        *((text, True) for text in ("array(['a'], dtype=object)", "Counter({'a': 1})")),
    ],
)
def test_names_may_be_in_brackets(text, written):
    assert is_written(text) == written


def test_a_list_as_text_in_memory_is_not_a_class():
    rows = {"text": ["a", "b"], "label": ["['pos', 'pos', 'neg']", "['neg', 'neg']"]}
    with pytest.raises(
        UserError, match=r"<dict>:1: the label is the text \['pos', 'pos', 'neg'\], of a list .* itself"
    ):
        read_rows(as_sources(rows), columns={}, fields=FIELDS["one"])


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("column", ["text", "label"])
def test_bytes_that_were_written_as_text_are_refused(tmp_path, column, several):
    frame = pd.DataFrame({"text": ["b is good", "b'"], "label": ["a", "b'a"]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    fields = Fields(several=several)
    assert len(read_rows([tmp_path / "a.csv"], columns={}, fields=fields)) == 2
    frame[column] = [b"it\xe2\x80\x99s good", b'"It\'s"']
    frame.to_csv(tmp_path / "a.csv", index=False)
    if column == "label" and several:
        return
    with pytest.raises(UserError, match=rf"a\.csv:2: the {column} is b.*which Python writes of bytes; decode"):
        read_rows([tmp_path / "a.csv"], columns={}, fields=fields)
    assert column == "label" or len(read_rows([tmp_path / "a.csv"], columns={}, gold=False)) == 2
