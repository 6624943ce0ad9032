"""Tests of reading and writing Excel's workbooks, beside pandas and openpyxl."""

import datetime
import random
import zipfile

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unmask.data.labelled.labelled_file import read_rows
from unmask.data.text import files, spreadsheet
from unmask.data.text.record_files import read_file
from unmask.data.text.spreadsheet import write_xlsx
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


VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffe\uffff"), max_size=20),
    st.sampled_from(["=1+1", "#N/A", "_x000D_", "a_x0041_", "\r\n", "1,5", "007", "@x", " a ", "\ta"]),
    st.booleans(),
    st.integers(-(10**18), 10**18),
    st.integers(-(10**6), 10**6).map(lambda number: number / 8),  # of no more than 15 digits
    st.none(),
)


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5))
def test_what_is_written_is_read_again(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("xlsx") / "a.xlsx"
    table = [{"id": number, "a": first, "b": second} for number, (first, second) in enumerate(rows)]
    path.write_bytes(write_xlsx(["id", "a", "b"], table))

    def as_read(value):
        if isinstance(value, str):
            return value if value.strip() else None  # cells of spaces are empty
        if isinstance(value, int) and abs(value) >= 10**15:  # of which Excel would forget digits
            return str(value)
        return int(value) if isinstance(value, float) and value.is_integer() else value

    expected = [{name: as_read(value) for name, value in row.items()} for row in table]
    found = [record for _, record in read_file(path)]
    assert found == expected
    kinds = [[type(value) for value in record.values()] for record in found]
    assert kinds == [[type(value) for value in record.values()] for record in expected]


def test_texts_are_no_formulas_and_numbers_are_numbers(tmp_path):
    (tmp_path / "a.xlsx").write_bytes(write_xlsx(["=a", "b"], [{"=a": "=1+1", "b": 0.9731}, {"=a": "#N/A", "b": 2.0}]))
    sheet = openpyxl.load_workbook(tmp_path / "a.xlsx").active
    cells = [[(cell.value, cell.data_type) for cell in row] for row in sheet.iter_rows()]
    assert cells[1:] == [[("=1+1", "s"), (0.9731, "n")], [("#N/A", "s"), (2, "n")]] and cells[0][0] == ("=a", "s")


def test_what_excel_does_not_hold_is_refused(monkeypatch):
    with pytest.raises(UserError, match=r"a text of 40,000 characters: row 3, column 'b'; write \.csv"):
        write_xlsx(["b"], [{"b": "a"}, {"b": "a" * 40_000}])
    monkeypatch.setattr(spreadsheet, "MAX_SHEET", 3)
    write_xlsx(["b"], [{"b": 1}] * 2)
    with pytest.raises(UserError, match="more than 3 rows"):
        write_xlsx(["b"], [{"b": 1}] * 3)
