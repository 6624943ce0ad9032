"""Labels and tables in the forms of other programs: the same examples as in ours, or refused with what to do."""

import json
import random
from dataclasses import asdict

import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
from pyarrow import parquet

from unmask.data.labelled.annotations import read_annotations
from unmask.data.labelled.columns import Fields, as_columns
from unmask.data.labelled.labelled_file import parse_columns, read_rows
from unmask.data.labelled.table import as_sources, as_table
from unmask.support.errors import UserError
from unmask.support.messages import argument

SEVERAL = Fields(several=True)
NAMES = ["anger", "fear", "joy"]


def drawn(seed, number=12):
    """Return texts, and for each a truth value for each of three labels, each of which some text has."""
    rng = random.Random(seed)
    chosen = [[rng.random() < 0.5 for _ in NAMES] for _ in range(number)]
    return [f"text {place}" for place in range(number)], [[True] * len(NAMES), *chosen[1:]]


def labels_of(source, **options):
    return [row.labels for row in read_rows(as_sources(source), columns={}, fields=SEVERAL, **options)]


VECTORS = {"int": int, "float": float, "bool": bool, "numpy": np.float32}


@pytest.mark.seeds(10)
@pytest.mark.parametrize("kind", VECTORS)
def test_vectors_of_labels_are_read_from_every_source(seed, kind, tmp_path):
    texts, chosen = drawn(seed)
    expected = [tuple(str(place) for place, has in enumerate(row) if has) for row in chosen]
    vectors = [[VECTORS[kind](value) for value in row] for row in chosen]
    plain = [[np.asarray(value).item() for value in row] for row in vectors]
    frame = pd.DataFrame({"text": texts, "labels": vectors})
    pd.DataFrame({"text": texts, "labels": plain}).to_csv(tmp_path / "a.csv", index=False)
    records = [{"text": text, "labels": row} for text, row in zip(texts, plain, strict=True)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, records)))
    table = pyarrow.table({"text": texts, "labels": plain})
    parquet.write_table(table, tmp_path / "a.parquet")
    sized = pyarrow.array(plain, pyarrow.list_(table.schema.field("labels").type.value_type, len(NAMES)))
    parquet.write_table(pyarrow.table({"text": texts, "labels": sized}), tmp_path / "sized.parquet")
    sources = [frame, polars.DataFrame({"text": texts, "labels": plain}), *sorted(tmp_path.iterdir())]
    for source in sources:
        assert labels_of(source) == expected, source


@pytest.mark.seeds(5)
def test_sets_are_the_labels_of_a_text(seed):
    texts, chosen = drawn(seed)
    sets = [{name for name, has in zip(NAMES, row, strict=True) if has} for row in chosen]
    frozen = [frozenset(names) for names in sets]
    for column in (sets, frozen):
        assert list(map(set, labels_of(pd.DataFrame({"text": texts, "labels": column})))) == sets


@pytest.mark.parametrize("written", [("TRUE", "FALSE"), ("true", "false"), ("True", "False"), ("1.0", "0.0")])
def test_columns_of_truth_values_are_read_as_programs_write_them(written, tmp_path):
    texts, chosen = drawn(0)
    columns = {name: [written[not row[place]] for row in chosen] for place, name in enumerate(NAMES)}
    pd.DataFrame({"text": texts, **columns}).to_csv(tmp_path / "a.csv", index=False)
    rows = read_rows([tmp_path / "a.csv"], columns=as_columns({"label": NAMES}), fields=SEVERAL)
    expected = [{name for name, has in zip(NAMES, row, strict=True) if has} for row in chosen]
    assert [set(row.labels) for row in rows] == expected


def test_vectors_that_are_no_zeros_and_ones_are_refused_with_what_to_write():
    frame = pd.DataFrame({"text": ["a", "b"], "labels": [[0.9, 0.1], [0.2, 0.3]]})
    with pytest.raises(UserError, match=r"contains float, not names; write the names .* or an object of probabilities"):
        labels_of(frame)


def test_columns_are_names_numbers_or_lists():
    assert as_columns(None) == {}
    with pytest.raises(UserError, match="not a mapping of our names to those in the file"):
        as_columns("text=a")
    assert as_columns({"text": 3, "label": "a"}) == {"text": "3", "label": "a"}
    for several in (["joy", "fear"], ("joy", "fear")):
        assert as_columns({"label": several}) == parse_columns("label=joy,fear")
    for wrong in (None, 1.0, True, [], ["a", None], {"a": 1}):
        with pytest.raises(UserError, match="is not the name of a column; give its name, its number from 0, or a list"):
            as_columns({"label": wrong})
    with pytest.raises(UserError, match="the name 'a,b' of one of several columns has a comma; rename it"):
        as_columns({"label": ["a,b", "c"]})
    assert as_columns({"label": ["a,b"]}) == {"label": "a,b"}


def test_a_query_of_polars_is_computed():
    frame = polars.DataFrame({"text": ["a", "b"], "label": ["x", "y"]})
    query = frame.lazy().filter(polars.col("label") == "y")
    assert asdict(as_table(query)) | {"name": ""} == asdict(as_table(frame[1:])) | {"name": ""}


TEXTS = pd.DataFrame({"text": ["a joy", "a bore"], "label": ["good", "bad"]})


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
@pytest.mark.parametrize("orient", ["columns", "split", "table", "index"])
def test_tables_as_one_object_are_refused_with_how_to_write_them(orient, suffix, tmp_path):
    path = tmp_path / f"a.{suffix}"
    TEXTS.to_json(path, orient=orient)
    message = r":1: the object is a table, not an example; keys: .*; write an object for each example .* lines=True\)"
    with pytest.raises(UserError, match=message):
        read_rows([path], columns={})
    TEXTS.to_json(path, orient="records", lines=True)
    assert [row.values["label"] for row in read_rows([path], columns={})] == ["good", "bad"]


@pytest.mark.parametrize("indent", [None, 2])
def test_lists_of_examples_in_an_object_are_refused(indent, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"version": "1", "data": TEXTS.to_dict("records")}, indent=indent))
    problem = "an object has several lines" if indent else "the object is a table, not an example"
    with pytest.raises(UserError, match=rf":1: {problem}.*; write an object for each example on a line of its own"):
        read_rows([path], columns={})


def test_lists_of_values_are_refused_with_how_to_write_them(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(TEXTS.to_dict("list")))
    with pytest.raises(UserError, match=r"'text' is list, not text.*; write an object for each example"):
        read_rows([path], columns={})


def test_numbers_and_bytes_in_place_of_texts_are_refused_with_how_to_write_them():
    with pytest.raises(UserError, match=r"'text' \(column 'body'\) is int, .* by astype\(\{'body': str\}\)"):
        read_rows([as_table({"body": [1, 2], "label": ["x", "y"]})], columns={"text": "body"})
    with pytest.raises(UserError, match=r"'text' is bytes, not text; decode it"):
        read_rows([as_table({"text": [b"a"], "label": ["x"]})], columns={})


@pytest.mark.parametrize("kind", [pyarrow.binary(), pyarrow.large_binary(), pyarrow.binary_view()], ids=str)
def test_texts_that_are_declared_as_bytes_are_read(kind, tmp_path):
    columns = {name: pyarrow.array([value.encode() for value in TEXTS[name]], kind) for name in ("text", "label")}
    table = pyarrow.table({**columns, "digest": pyarrow.array([b"\xff\xfe", None], kind), "id": [1, 2]})
    with pyarrow.OSFile(str(tmp_path / "a.arrow"), "w") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    parquet.write_table(table, tmp_path / "a.parquet")
    for path in tmp_path.iterdir():
        rows = read_rows([path], columns={}, gold=False)
        assert [row.values["text"] for row in rows] == list(TEXTS["text"])
        assert [sorted(row.source) for row in rows] == [["id", "label", "text"]] * 2
        assert [row.values["label"] for row in read_rows([path], columns={})] == list(TEXTS["label"])


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        (
            "a.txt",
            "__label__good a joy, really\n__label__bad a bore\n",
            "write the lines of fastText as columns",
        ),
        ("a.tsv", '"text"\t"label"\n"a joy"\t"good"\n', "its cells are quoted, as in CSV: name the file .csv"),
        (
            "a.csv",
            "# exported in May\ntext,label\na joy,good\n",
            "if the header is below this line, remove",
        ),
        (
            "a.csv",
            "Answers,,\n,,\ntext,label,\na joy,good,\n",
            "if the header is below this line, remove",
        ),
        ("a.csv", "body,queue\na joy,good\n", "or numbers from 0 if there is no header$"),
    ],
)
def test_what_to_do_about_a_first_line_that_is_no_header_is_said(name, text, remedy, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=rf":1: no column named text or .*; .*{remedy}"):
        read_rows([tmp_path / name], columns={})
    if name == "a.tsv":
        (tmp_path / name).rename(tmp_path / "a.csv")
        assert read_rows([tmp_path / "a.csv"], columns={})[0].values == {"text": "a joy", "label": "good"}


def test_words_in_rows_of_their_own_are_refused_with_how_to_group_them():
    frame = pd.DataFrame({"sentence_id": [0, 0, 1], "words": ["Anna", "met", "Bob"], "labels": ["B-PER", "O", "B-PER"]})
    with pytest.raises(UserError, match=r"'words' is not a list of strings; make a list .*groupby\('sentence_id'\)"):
        read_annotations(as_sources(frame), columns={})
    grouped = frame.groupby("sentence_id").agg(list)
    assert [sentence.tags for sentence in read_annotations(as_sources(grouped), columns={})] == [
        ("B-PER", "O"),
        ("B-PER",),
    ]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("text", "text_pair"),
        ("text1", "text2"),
        ("text_1", "text_2"),
        ("Sentence_1", "sentence_2"),
        ("query", "positive"),
    ],
)
def test_pairs_are_read_as_programs_name_them(first, second, tmp_path):
    rows = [{first: "a dog runs", second: "an animal moves", "label": "x"}]
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    for source in (as_table(rows), tmp_path / "a.csv"):
        (row,) = read_rows([source], columns={})
        assert row.values == {"text": "a dog runs", "text_b": "an animal moves", "label": "x"}


@pytest.mark.parametrize("second", ["answer", "Context", "passage", "response"])
def test_a_column_that_may_be_the_second_text_is_noted(second):
    table, notes = as_table([{"question": "when?", second: "then", "label": "x"}]), list[str]()
    assert read_rows([table], columns={}, notes=notes)[0].values == {"text": "when?", "label": "x"}
    both = {"text": "question", "text_b": second}
    assert notes == [f"<list>: single texts are read, from 'question'; {argument('columns', both)} would read pairs"]
    for chosen in ({"text": "question"}, both):
        notes.clear()
        read_rows([table], columns=chosen, notes=notes)
        assert not notes
