"""Tests of reading Excel's workbooks, beside pandas."""

import datetime
import random
import zipfile

import pandas as pd
import pytest

from unmask.data.labelled.labelled_file import read_rows
from unmask.data.text import files
from unmask.data.text.record_files import read_file
from unmask.support.errors import UserError

openpyxl = pytest.importorskip("openpyxl")

NAMES = ["text", "label", "score", "note"]


def write(path, sheets):
    """Write a workbook, given the rows of each sheet, with the header, by its name."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def made(rng):
    text = "".join(rng.choices("abc ä中😀'\";=", k=rng.randrange(1, 20))).strip("= ") or "x"
    return [text, rng.choice(["x", 1, 2.0, "007", True]), rng.choice([0.5, -1, 1e-3, 1e15]), rng.choice([None, "n"])]


def test_rows_are_those_that_pandas_reads(tmp_path):
    rng = random.Random(0)
    for number in range(15):
        rows = [made(rng) for _ in range(rng.randrange(1, 30))]
        path = write(tmp_path / f"{number}.xlsx", {"Sheet 1": [NAMES, *rows], "Empty": [[None, None]] * 3})
        frame = pd.read_excel(path, dtype=object, keep_default_na=False, na_values=[""])
        expected = frame.where(frame.notna(), None).to_dict("records")
        assert [record for _, record in read_file(path)] == expected
        assert [line for line, _ in read_file(path)] == list(range(2, len(rows) + 2))


def test_escaped_control_characters_are_read(tmp_path):
    """XlsxWriter and Excel write a carriage return as _x000D_, and such a text itself as _x005F_x000D_."""
    texts = {
        "one_x000D_\ntwo": "one\r\ntwo",
        "a_x0007__x001f_b": "a\a\x1fb",
        "_x005F_x000D_": "_x000D_",
        "_x00e9_": "_x00e9_",
    }
    path = write(tmp_path / "a.xlsx", {"one": [["text_x0009_"], *([text] for text in texts)]})
    assert [record for _, record in read_file(path)] == [{"text": text} for text in texts.values()]


def test_labels_are_as_excel_shows_them(tmp_path):
    rows = [["text", "label"], ["a", 1.0], [None, None], ["b", "01"], ["c", 2.5], ["d", datetime.date(2024, 2, 3)]]
    path = write(tmp_path / "a.xlsx", {"one": rows})
    read = [(row.line, row.values["label"]) for row in read_rows([path], columns={})]
    assert read == [(2, "1"), (4, "01"), (5, "2.5"), (6, "2024-02-03T00:00:00")]


def test_one_of_several_sheets_is_named(tmp_path):
    path = write(tmp_path / "a.xlsx", {"train": [["text"], ["a"]], "test": [["text"], ["b"]], "none": []})
    with pytest.raises(UserError, match=rf"^{path}: 2 sheets have rows; name one: {path}#train, {path}#test$"):
        list(read_file(path))
    with pytest.raises(UserError, match=r"there is no sheet 'tests'; name one: .*#none"):
        list(read_file(f"{path}#tests"))
    assert list(read_file(f"{path}#test")) == [(2, {"text": "b"})]


def test_empty_rows_and_columns_are_left_out(tmp_path):
    rows = [[None], ["text", None, "label"], [None], ["a", None, "x", " "], ["b"], [None, " "], [None]]
    path = write(tmp_path / "a.xlsx", {"one": rows})
    assert list(read_file(path)) == [(4, {"text": "a", "label": "x"}), (5, {"text": "b", "label": None})]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["text", "label"], ["a", "=1+1"]], r":2: the value of the formula =1\+1 was not saved; open the file"),
        ([["text", "text"], ["a", "b"]], ":1: several columns are named text"),
        ([["text"], ["a", "b"]], ":2: the row has 2 cells, but .* the header, has 1: .*remove the rows above"),
        ([["text", None, "label"], ["a", "b", "c"]], ":2: a column without a name has values"),
        ([], "0 sheets have rows"),
    ],
)
def test_bad_rows_are_named(tmp_path, rows, message):
    path = write(tmp_path / "a.xlsx", {"one": rows})
    with pytest.raises(UserError, match=rf"^{path}.*{message}"):
        list(read_file(path))


def test_damaged_and_expanding_files_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.xlsx"
    for content in (b"", b"PK\x03\x04", b"text,label\n"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"^{path}: cannot be read as xlsx"):
            list(read_file(path))
    with pytest.raises(UserError, match="cannot be read"):
        list(read_file(tmp_path / "missing.xlsx"))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", b" " * (files.FREE + 1))
    with pytest.raises(UserError, match="expands to more than 100 times its size"):
        list(read_file(path))
