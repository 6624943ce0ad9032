"""Tests of reading OpenDocument spreadsheets, written here as LibreOffice writes them."""

import random
import zipfile
from xml.sax.saxutils import escape, quoteattr

import pytest

from unmask.data.labelled.labelled_file import read_rows
from unmask.data.text import files
from unmask.data.text.record_files import read_file
from unmask.support.errors import UserError

NAMESPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "table", "text")
)
CALC = "urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0"
EMPTY = "<table:table-cell/>"
ROW = '<table:table-row table:number-rows-repeated="{}">{}</table:table-row>'


def write(path, sheets):
    """Write a spreadsheet, given the XML of the rows of each sheet by its name."""
    tables = "".join(f"<table:table table:name={quoteattr(name)}>{rows}</table:table>" for name, rows in sheets.items())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        root = f'<office:document-content {NAMESPACES} xmlns:calcext="{CALC}">'
        body = f"<office:body><office:spreadsheet>{tables}</office:spreadsheet></office:body></office:document-content>"
        archive.writestr("content.xml", f'<?xml version="1.0" encoding="UTF-8"?>{root}{body}')
    return path


def cell(kind, shown, attributes=""):
    return f'<table:table-cell office:value-type="{kind}" {attributes}>{shown}</table:table-cell>'


def text(value):
    """Return a cell of text: spaces after the first are elements, and each line is a paragraph."""
    value = escape(value).replace("\t", "<text:tab/>").replace("  ", ' <text:s text:c="1"/>')
    if value.startswith(" "):
        value = "<text:s/>" + value[1:]
    return cell("string", "".join(f"<text:p>{line}</text:p>" for line in value.split("\n")))


def number(value, kind="float"):
    return cell(kind, f"<text:p>{value:.2f}</text:p>", f'office:value="{value!r}"')


def boolean(value):
    return cell("boolean", "<text:p>WAHR</text:p>", f'office:boolean-value="{str(value).lower()}"')


def rows(values):
    """Return the XML of rows: equal ones and equal cells that follow each other are repeated."""
    lines = []
    for row in values:
        cells = [EMPTY if value is None else value for value in row]
        packed = ""
        while cells:
            count = next((place for place, other in enumerate(cells) if other != cells[0]), len(cells))
            repeated = f'<table:table-cell table:number-columns-repeated="{count}"'
            packed += cells[0].replace("<table:table-cell", repeated, 1)
            del cells[:count]
        if lines and lines[-1][1] == packed:
            lines[-1][0] += 1
        else:
            lines.append([1, packed])
    rest = ROW.format(1 << 20, '<table:table-cell table:number-columns-repeated="16384"/>')
    return "".join(ROW.format(*line) for line in lines) + rest


def made(rng):
    """Return a random value and its cell."""
    word = "".join(rng.choices("abc ä中😀'&<>=\n\t", k=rng.randrange(1, 20)))
    choices = [
        (None, None),
        (word if word.strip() else None, text(word)),
        ((whole := rng.randrange(-9, 10**6)), number(float(whole), rng.choice(["float", "currency"]))),
        ((share := rng.random()), number(share, "percentage")),
        (True, boolean(True)),
        (False, boolean(False)),
        ("2024-02-29", cell("date", "<text:p>29.02.24</text:p>", 'office:date-value="2024-02-29"')),
        ("2024-02-29T13:05:00", cell("date", "<text:p/>", 'office:date-value="2024-02-29T13:05:00"')),
        ("13:05:06.5", cell("time", "<text:p>13:05</text:p>", 'office:time-value="PT13H05M06.500000000S"')),
    ]
    return rng.choice(choices)


def test_rows_are_those_that_were_written(tmp_path):
    rng = random.Random(0)
    names = ["text", "label", "score", "note"]
    header = [text(name) for name in names]
    for seed in range(25):
        values = [[made(rng) for _ in names] for _ in range(rng.randrange(1, 15)) for _ in range(rng.choice([1, 1, 3]))]
        written = rows([header, *([shown for _, shown in row] for row in values)])
        path = write(tmp_path / f"{seed}.ods", {"A & B": written, "none": rows([[None]])})
        expected = [
            (line, dict(zip(names, (value for value, _ in row), strict=True)))
            for line, row in enumerate(values, 2)
            if any(value is not None for value, _ in row)
        ]
        read = list(read_file(path))
        assert repr(read) == repr(expected)  # True is not 1
        assert list(read_file(f"{path}#A & B")) == read


def test_labels_are_as_they_are_shown(tmp_path):
    written = [[text("text"), text("label")], [text("a"), number(1.0)], [None], [text("b"), text("01")]]
    path = write(tmp_path / "a.ods", {"one": rows(written)})
    read = [(row.line, row.values["label"]) for row in read_rows([path], columns={})]
    assert read == [(2, "1"), (4, "01")]


def test_what_is_shown_is_read(tmp_path):
    content = (
        "<text:p>a<text:s text:c='3'/>b <text:span>c<text:a>d</text:a></text:span><text:line-break/>e\n  f</text:p>"
    )
    comment = "<office:annotation><text:p>comment</text:p></office:annotation>"
    merged = '<table:table-cell table:number-columns-spanned="2" office:value-type="string"><text:p>m</text:p>'
    covered = '<table:covered-table-cell office:value-type="string"><text:p>hidden</text:p></table:covered-table-cell>'
    written = f"{ROW.format(1, text('x') + text('y'))}{ROW.format(1, merged + '</table:table-cell>' + covered)}"
    written += ROW.format(1, cell("string", comment + content) + cell("string", "", 'office:string-value="v"'))
    path = write(tmp_path / "a.ods", {"one": f"<table:table-header-rows>{written}</table:table-header-rows>"})
    assert list(read_file(path)) == [(2, {"x": "m", "y": None}), (3, {"x": "a   b cd\ne f", "y": "v"})]


def test_one_of_several_sheets_is_named(tmp_path):
    sheet = rows([[text("text")], [text("a")]])
    path = write(tmp_path / "a.ods", {"train": sheet, "test": sheet.replace(">a<", ">b<"), "none": ""})
    with pytest.raises(UserError, match=rf"^{path}: 2 sheets have rows; name one: {path}#train, {path}#test$"):
        list(read_file(path))
    with pytest.raises(UserError, match=r"there is no sheet 'tests'; name one: .*#none"):
        list(read_file(f"{path}#tests"))
    assert list(read_file(f"{path}#test")) == [(2, {"text": "b"})]


FORMULA = 'table:formula="of:=1/0"'
FAILED = cell("float", "<text:p>Err:502</text:p>", f'{FORMULA} office:value="0"')


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (FAILED, r":2: the formula of:=1/0 fails: Err:502; fix it"),
        (cell("string", "<text:p>#DIV/0!</text:p>", f'{FORMULA} calcext:value-type="error"'), ":2: .* fails: #DIV/0!"),
        (f"<table:table-cell {FORMULA}/>", r":2: the value of the formula of:=1/0 was not saved; open the file"),
        (text("a") + text("b"), ":2: the row has 2 cells, but .* the header, has 1: .*remove the rows above"),
        (
            EMPTY.replace("/>", ' table:number-columns-repeated="16384"/>') + text("a"),
            ":2: has more than 16,384 columns",
        ),
        (cell("complex", ""), ":2: a cell is of the unknown type complex"),
        (cell("float", ""), "cannot be read as ods"),
        (f"<table:table-cell><table:table>{EMPTY}</table:table></table:table-cell>", "a cell contains a table"),
    ],
)
def test_bad_rows_are_named(tmp_path, second, message):
    path = write(tmp_path / "a.ods", {"one": ROW.format(1, text("text")) + ROW.format(1, second)})
    with pytest.raises(UserError, match=rf"^{path}.*{message}"):
        list(read_file(path))


def test_damaged_and_expanding_files_are_refused(tmp_path):
    path = tmp_path / "a.ods"
    for content in (b"", b"PK\x03\x04", b"text,label\n"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=rf"^{path}: cannot be read as ods"):
            list(read_file(path))
    with pytest.raises(UserError, match="cannot be read"):
        list(read_file(tmp_path / "missing.ods"))
    write(path, {"one": "<table:table-row>"})
    with pytest.raises(UserError, match="cannot be read as ods"):
        list(read_file(path))
    write(path, {"one": " " * (files.FREE + 1)})
    with pytest.raises(UserError, match="expands to more than 100 times its size"):
        list(read_file(path))
    write(path, {"one": ROW.format(1, text("text")) + ROW.format(1 << 30, text("a"))})
    with pytest.raises(UserError, match="has more than 16,777,216 rows"):
        list(read_file(path))
