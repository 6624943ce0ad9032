"""Predictions are written with all columns of the input, as pandas reads them."""

import io
import json
import random
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl.utils.escape import unescape

from unmask.data.labelled.columns import Fields
from unmask.data.labelled.label_cells import is_written
from unmask.data.labelled.labelled_file import Row, read_rows
from unmask.data.labelled.span_export import export_labels
from unmask.inference.stream import check_table
from unmask.support.errors import UserError
from unmask.tasks.classification import Classification, Prediction
from unmask.tasks.multi_label import Labels, MultiLabel
from unmask.tasks.prediction_tables import TABLES, as_row, with_columns, write_table
from unmask.tasks.question_answering import QuestionAnswering
from unmask.tasks.regression import Regression
from unmask.tasks.spans import Spans
from unmask.tasks.sparse import SparseVector
from unmask.tasks.token_classification import TokenClassification

TEXTS = ["plain", "a, b", 'with "quotes"', "two\nlines", "carriage\rreturn", "both\r\n"]
TEXTS += ["\u4f60\u597d", "\U0001f600 e\u0301", "1", "NA", "=1+1"]


def table(seed, texts=TEXTS):
    rng = random.Random(seed)
    return pd.DataFrame(
        {
            "id": [f"{rng.randint(0, 99):03}" for _ in texts],
            "text": rng.sample(texts, len(texts)),
            "note": rng.choices([*texts, ""], k=len(texts)),
            "label": rng.choices(["x", "y", ""], k=len(texts)),
        }
    )


def predicted(rows):
    return [Prediction(row.values["text"], "yes", {"no": 0.25, "yes": 0.75}, cut=row.line % 3 == 0) for row in rows]


def read(content, suffix):
    if suffix == ".parquet":
        return pd.read_parquet(io.BytesIO(content))
    if suffix == ".xlsx":
        found = pd.read_excel(io.BytesIO(content), dtype=str, keep_default_na=False)
        return found.map(unescape)  # as Excel does
    return pd.read_csv(io.BytesIO(content), sep="\t" if suffix == ".tsv" else ",", dtype=str, keep_default_na=False)


@pytest.mark.seeds(20)
@pytest.mark.parametrize("suffix", TABLES)
def test_tables_have_the_columns_of_the_input_and_of_the_prediction(seed, suffix, tmp_path):
    given = table(seed, [text for text in TEXTS if not set(text) & {*'\r\n"'}] if suffix == ".tsv" else TEXTS)
    given.to_csv(tmp_path / "a.csv", index=False, lineterminator="\r\n")  # which quotes lone carriage returns
    rows = read_rows([tmp_path / "a.csv"], columns={}, gold=False)
    written = [as_row(row, prediction) for row, prediction in zip(rows, predicted(rows), strict=True)]
    found = read(b"".join(write_table(suffix, written)), suffix)
    assert list(found.columns)[:7] == ["id", "text", "note", "label", "predicted", "scores:no", "scores:yes"]
    for column in given.columns:
        expected = given[column].str.strip() if column == "text" else given[column]
        assert found[column].str.strip().tolist() == expected.str.strip().tolist()
    assert found["predicted"].tolist() == ["yes"] * len(given)
    assert found["scores:yes"].astype(float).tolist() == [0.75] * len(given)
    assert [cell in (True, "True") for cell in found["cut"]] == [row.line % 3 == 0 for row in rows]


@pytest.mark.parametrize("suffix", TABLES)
def test_columns_that_the_first_row_lacks_are_written(suffix):
    rows = [{"text": "a", "x": "1"}, {"text": "b", "cut": True}, {"text": "c", "y": "2", "cut": True}]
    found = read(b"".join(write_table(suffix, rows)), suffix)
    assert list(found.columns) == ["text", "x", "cut", "y"]
    assert found["y"].fillna("").tolist() == ["", "", "2"]


def test_parquet_refuses_columns_of_several_types():
    with pytest.raises(UserError, match=r"Parquet cannot hold the column 'id' .*write \.csv or \.jsonl instead"):
        b"".join(write_table(".parquet", [{"id": 1}, {"id": "x"}]))


def test_json_lines_have_the_other_columns(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": 7, "text": "a", "label": "gold", "meta": {"by": "me"}}) + "\n")
    (row,) = read_rows([tmp_path / "a.jsonl"], columns={}, gold=False)
    assert with_columns(row, predicted([row])[0]) == {
        "text": "a",
        "label": "yes",
        "scores": {"no": 0.25, "yes": 0.75},
        "id": 7,
        "meta": {"by": "me"},
        "input_label": "gold",
    }


def test_json_lines_hide_no_column_of_the_input(tmp_path):
    (tmp_path / "a.csv").write_text("text,body,scores\ntitle, the body ,3\n")
    (row,) = read_rows([tmp_path / "a.csv"], columns={"text": "body"}, gold=False)
    found = with_columns(row, predicted([row])[0])
    assert (found["text"], found["input_text"], found["body"], found["input_scores"]) == (
        row.values["text"],
        "title",
        "the body ",
        "3",
    )


def test_a_column_of_the_input_has_one_name_in_all_json_lines(tmp_path):
    """A column `cut` was `input_cut` where the text was truncated, and elsewhere seemed to say that it was."""
    (tmp_path / "a.csv").write_text("text,cut\na,1\nb,2\n")
    rows = read_rows([tmp_path / "a.csv"], columns={}, gold=False)
    pairs = zip(rows, (False, True), strict=True)
    found = [with_columns(row, Prediction(row.values["text"], "x", {"x": 1.0}, cut=cut)) for row, cut in pairs]
    assert [(line.get("cut"), line["input_cut"]) for line in found] == [(None, "1"), (True, "2")]


def test_names_of_the_input_are_kept_and_those_of_predictions_give_way(tmp_path):
    (tmp_path / "a.csv").write_text("text,predicted,x,x\na,no,1,2\n")
    (row,) = read_rows([tmp_path / "a.csv"], columns={}, gold=False)
    found = as_row(row, predicted([row])[0])
    assert (found["predicted"], found["predicted_predicted"], found["x"], found["x.1"]) == ("no", "yes", "1", "2")


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_predictions_of_a_file_of_predictions_lose_none_of_its_columns(suffix, tmp_path):
    """The third ones overwrote the second ones, or the label of the file."""
    file, scores = tmp_path / f"a{suffix}", [0.25, 0.5, 0.75, 1.0]
    file.write_text("text,label\na,gold\n" if suffix == ".csv" else '{"text": "a", "label": "gold"}\n')
    for score in scores:
        (row,) = read_rows([file], columns={}, gold=False)
        prediction = Prediction("a", str(score), {"x": score})
        if suffix == ".csv":
            found = as_row(row, prediction)
            file.write_bytes(b"".join(write_table(suffix, [found])))
        else:
            found = with_columns(row, prediction)
            file.write_text(json.dumps(found))
    others = sorted(str(found[name]) for name in found if "scores" not in name)
    assert others == [*map(str, scores), "a", "gold"]
    kept = [found[name] for name in found if "scores" in name]
    assert [float(value["x"] if isinstance(value, dict) else value) for value in sorted(kept, key=str)] == scores


def test_files_without_a_header_have_numbered_columns(tmp_path):
    (tmp_path / "a.tsv").write_text("7\tsome text\n8\tother\n")
    rows = read_rows([tmp_path / "a.tsv"], columns={"text": "1"}, gold=False)
    assert [as_row(row, predicted([row])[0])["0"] for row in rows] == ["7", "8"]


def test_several_labels_are_one_cell():
    row, prediction = Row({"text": "a"}, "", 0), Labels("a", ("x", "y"), {"x": 0.9, "y": 0.8})
    assert as_row(row, prediction) == {"text": "a", "predicted": "x,y", "scores:x": 0.9, "scores:y": 0.8}


def test_sparse_vectors_have_a_column_for_each_token_of_any_text():
    vectors = [SparseVector("a", {"x": 0.5, "y": 0.25}, (7, 9)), SparseVector("b", {"z": 1.0}, (3,))]
    rows = [as_row(Row({"text": of.text}, "", 0), of) for of in vectors]
    assert [row["ids"] for row in rows] == ["7,9", "3"]
    for suffix in (".csv", ".parquet"):
        found = read(b"".join(write_table(suffix, rows)), suffix)
        assert found["weights:z"].replace("", None).astype(float).fillna(0).tolist() == [0.0, 1.0]


NAMES = st.lists(  # that can be learned
    st.text("ab,;|[]{} \"'", min_size=1).filter(lambda name: name == name.strip() and not is_written(name)), unique=True
)


@given(NAMES)
def test_several_labels_are_read_as_they_were_predicted(tmp_path_factory, names):
    path = tmp_path_factory.mktemp("predicted") / "a.csv"
    labels = Labels("text", tuple(names), dict.fromkeys(names, 0.9))
    rows = [as_row(Row({"text": "text"}, "", 0), labels), {"text": "other", "predicted": "a"}]
    path.write_bytes(b"".join(write_table(".csv", rows)))
    first, _ = read_rows([path], columns={"label": "predicted"}, fields=Fields(several=True))
    assert first.labels == tuple(names)


def test_tsv_refuses_what_it_cannot_hold():
    with pytest.raises(UserError, match=r"TSV cannot hold the tab or line break in .*write \.csv"):
        b"".join(write_table(".tsv", [{"text": "a\tb"}]))


def test_many_rows_are_written_in_parts():
    rows = [{"text": str(number)} for number in range(25_000)]
    parts = list(write_table(".csv", rows))
    assert len(parts) == 3
    assert b"".join(parts).decode().splitlines() == ["text", *map(str, range(25_000))]


@pytest.mark.parametrize("name", ["out.doccano.jsonl", "out.labelstudio.json"])
def test_labels_are_written_as_annotators_import_them(name):
    path, row = Path(name), Row({"text": "a", "text_b": "b"}, "a.csv", 2, source={"text": "a", "id": 7})
    single = Classification(), Prediction("a", "yes", {"no": 0.25, "yes": 0.75}, text_b="b")
    several = MultiLabel(), Labels("a", ("x", "y"), {"x": 0.9, "y": 0.8, "z": 0.1}, text_b="b")
    for task, prediction in (single, several):
        record = task.record(path, row, prediction)
        expected = {"yes": 0.75} if prediction is single[1] else {"x": 0.9, "y": 0.8}
        assert record == export_labels(path, {"text": "a", "text_b": "b"}, expected)
        files = task.files(path, [record])
        if path.suffix == ".json":  # an array; otherwise a record in each line
            assert json.loads(b"".join(files[path])) == [record]
        else:
            assert files == {}


def test_what_annotators_do_not_import_is_refused():
    for task in (Regression(), QuestionAnswering()):
        for name in ("out.doccano.jsonl", "out.labelstudio.json"):
            with pytest.raises(UserError, match=rf"{name}: predictions of [\w ]+ are not written for annotators"):
                check_table(Path(name), task)
    for name, task in (("out.conllu", TokenClassification()), ("out.ann", Spans()), ("out.ods", Classification())):
        with pytest.raises(UserError, match=rf"{name}: predictions of [\w ]+ are not written as \.\w+; use "):
            check_table(Path(name), task)
    check_table(Path("out.labelstudio.json"), Classification())
    check_table(Path("out.jsonl"), Regression())
