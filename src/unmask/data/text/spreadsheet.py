"""Spreadsheets, Excel's (.xlsx) and OpenDocument's (.ods): the rows of a sheet whose first row is a header.

Input: `FILE`, if one sheet has rows, or `FILE#SHEET`. Output: records, numbered as the rows of the sheet, of texts,
numbers, truth values and dates as ISO 8601 text; empty cells are None. A whole number is an int, as Excel shows it.
Empty rows, and empty columns without a name, are left out. The sizes that an archive declares are bounded as those of
other compressed files (`MAX_RATIO`).

**Excel** needs openpyxl (the extra `excel`), which reads row by row. Workbooks are also written, with one sheet.

**OpenDocument**, as LibreOffice and Google Sheets write it: times are `13:05:00`, percentages are shares. Comments, and
cells that are covered by merged ones, are left out. Values are read from the XML (OpenDocument 1.3, part 3): libraries
leave out spaces, tabs and formulas that fail. Rows and columns that are repeated to the end of a sheet are empty, and
take no memory.
"""

from __future__ import annotations

import io
import math
import re
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime, time, timedelta
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

from unmask.data.text.files import (
    FREE,
    MAX_DOCUMENT,
    MAX_RATIO,
    TOO_LONG,
    expands_too_much,
    import_library,
    split_part,
)
from unmask.support.errors import UserError, counted

MAX_ROWS, MAX_COLUMNS = 1 << 24, 1 << 14
"""The largest sheets of LibreOffice; more repeated rows and columns than these are refused."""
_OASIS = "{urn:oasis:names:tc:opendocument:xmlns:"
_OFFICE, _TABLE, _TEXT = f"{_OASIS}office:1.0}}", f"{_OASIS}table:1.0}}", f"{_OASIS}text:1.0}}"
_ERROR = "{urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0}value-type"
_DURATION = re.compile(r"PT(\d+)H(\d+)M(\d+)(?:[.,](\d+))?S")
_NO_TEXT = (f"{_OFFICE}annotation", f"{_TEXT}ruby-text", f"{_TEXT}note")
_ESCAPED = re.compile("_x(00[01][0-9A-Fa-f]|005[Ff])_")
"""How Excel writes control characters, such as carriage returns, and its sign for that (ECMA-376, 22.9.2.19)."""
_RESERVED = re.compile(r"[\x00-\x08\x0b-\x1f]|_(?=x[0-9A-Fa-f]{4}_)")
"""What is written so: control characters, and underscores that could begin such a sign."""
MAX_CELL, MAX_SHEET = 32_767, 1 << 20
"""Number of characters of a cell, and of rows, that Excel holds."""
OTHERS = "write .csv, .jsonl or .parquet instead"
Element = ElementTree.Element
ERRORS = ("#DIV/0!", "#N/A", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!")
"""What is shown for a formula that fails."""
SAVE_AGAIN = "open the file in Excel or LibreOffice, and save it again"


def read_xlsx(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the rows of a sheet.

    Yields:
        The number of the row in the sheet, from 1, and its values by the names in the first row.

    Raises:
        UserError: openpyxl is missing, the file is no workbook or expands too much, it has several sheets with rows of
            which none is named, or a row is not as described; the message names it.
    """
    file, part = split_part(path)
    openpyxl = import_openpyxl(file)
    try:
        check_size(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles
            values = openpyxl.load_workbook(file, read_only=True, data_only=True)
            formulas = openpyxl.load_workbook(file, read_only=True)
        with closing(values), closing(formulas):
            for sheet in (*values.worksheets, *formulas.worksheets):
                sheet.reset_dimensions()  # what they declare may be too large
            name = choose_sheet({sheet.title: _xlsx_has_rows(sheet) for sheet in values.worksheets}, file, part)
            yield from read_records(_xlsx_rows(values[name], formulas[name], str(path)), str(path))
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror or error})", file=file) from error
    except (zipfile.BadZipFile, KeyError, ValueError, SyntaxError, EOFError) as error:  # SyntaxError: of XML
        raise UserError(f"cannot be read as xlsx ({str(error)[:200]})", file=file) from error


def import_openpyxl(path: str | Path) -> ModuleType:
    """Return openpyxl; see `import_library`."""
    return import_library("openpyxl", "excel", path)


def write_xlsx(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return a workbook with a sheet whose first row is a header, as `read_xlsx` reads it.

    Texts are texts, also those that begin like formulas; whole numbers that are too long for Excel are texts, too.

    Args:
        names: names of the columns.
        rows: values by column, texts, numbers and truth values; others are written as texts.

    Raises:
        UserError: openpyxl is missing, or a text, or the number of rows, is more than Excel holds.
    """
    openpyxl = import_openpyxl("predictions")
    from openpyxl.cell import WriteOnlyCell

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Sheet1")

    def cell(value: Any, name: str, number: int) -> Any:
        if value is None or (isinstance(value, bool | int | float) and is_held(value)):
            return value
        text = _RESERVED.sub(lambda match: "".join(f"_x{ord(mark):04X}_" for mark in match[0]), f"{value}")
        if len(text) > MAX_CELL:
            raise UserError(
                f"Excel cannot hold a text of {len(text):,} characters: row {number}, column '{name}'", remedy=OTHERS
            )
        made = WriteOnlyCell(sheet, text)
        made.data_type = "s"  # never a formula or an error
        return made

    try:
        for number, values in enumerate(chain([dict(zip(names, names, strict=True))], rows), 1):
            if number > MAX_SHEET:
                raise UserError(f"Excel cannot hold more than {MAX_SHEET:,} rows", remedy=OTHERS)
            sheet.append([cell(values.get(name), name, number) for name in names])
    except BaseException:
        sheet.close()
        raise
    content = io.BytesIO()
    book.save(content)
    return content.getvalue()


def is_held(number: float) -> bool:
    """Return whether Excel holds a number: it has 15 digits, and nothing that is not finite."""
    return math.isfinite(number) and (not isinstance(number, int) or abs(number) < 10**15)


def read_ods(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the rows of a sheet.

    Yields:
        The number of the row in the sheet, from 1, and its values by the names in the first row.

    Raises:
        UserError: the file is no spreadsheet or expands too much, it has several sheets with rows of which none is
            named, or a row is not as described; the message names it.
    """
    file, part = split_part(path)
    try:
        check_size(file)
        sheets: dict[str, bool] = {}
        for sheet, _, cells in _ods_cells(file):
            sheets[sheet] = sheets.get(sheet, False) or any(map(_has_content, cells))
        name = choose_sheet(sheets, file, part)
        yield from read_records(_ods_rows(file, name, str(path)), str(path))
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror or error})", file=file) from error
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, NotImplementedError, ElementTree.ParseError) as error:
        raise UserError(f"cannot be read as ods ({str(error)[:200]})", file=file) from error


def check_size(file: Path) -> None:
    """Raise a UserError if an archive declares that it expands too much; zipfile reads no more than it declares."""
    with zipfile.ZipFile(file) as archive:
        if sum(member.file_size for member in archive.infolist()) > max(FREE, MAX_RATIO * file.stat().st_size):
            raise expands_too_much(file)


def choose_sheet(sheets: Mapping[str, bool], file: Path, part: str) -> str:
    """Return the name of the sheet that is named, or of the only one with rows.

    Args:
        sheets: whether there are rows in each sheet, by its name.
        file: the file.
        part: the name; empty: none.

    Raises:
        UserError: there is no such sheet, or several have rows of which none is named.
    """
    chosen = [name for name, has_rows in sheets.items() if (name == part if part else has_rows)]
    if len(chosen) != 1:
        raise UserError(
            f"there is no sheet '{part}'" if part else f"{len(chosen)} sheets have rows",
            file=file,
            remedy=f"name one: {', '.join(f'{file}#{name}' for name in (chosen or [*sheets])[:10])}",
        )
    return chosen[0]


def read_records(rows: Iterable[tuple[int, Sequence[Any]]], path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows below the header.

    Args:
        rows: number of each row, and its values; texts of spaces are empty.
        path: the file, for messages.

    Raises:
        UserError: a row is longer than the header, has values without a name, or a text is too long.
    """
    names: list[str] | None = None
    for number, cells in rows:
        values = [_plain(cell, path, number) for cell in cells]
        while values and values[-1] is None:
            values.pop()
        if not values:
            continue
        if names is None:
            names = _header(values, path, number)
            continue
        if len(values) > len(names):
            raise UserError(
                f"the row has {counted(len(values), 'cell')}, but the first one, which is the header, has "
                f"{len(names)}: {', '.join(names)[:80]}",
                file=path,
                line=number,
                remedy="if the names of the columns are below a title, remove the rows above them",
            )
        values += [None] * (len(names) - len(values))
        for name, value in zip(names, values, strict=True):
            if not name and value is not None:
                raise UserError("a column without a name has values", file=path, line=number, remedy="name it")
        yield number, {name: value for name, value in zip(names, values, strict=True) if name}


def _xlsx_has_rows(sheet: Any) -> bool:
    return any(cell is not None for row in sheet.iter_rows(values_only=True) for cell in row)


def _xlsx_rows(sheet: Any, formulas: Any, path: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number of each row and its values, given the sheet with values, and with formulas in their place."""
    both = zip(sheet.iter_rows(values_only=True), formulas.iter_rows(values_only=True), strict=True)
    for number, (cells, sources) in enumerate(both, 1):
        yield number, [_xlsx_value(cell, source, path, number) for cell, source in zip(cells, sources, strict=True)]


def _xlsx_value(cell: Any, source: Any, path: str, number: int) -> Any:
    """Return the value of a cell, given its formula, if it has one."""
    if cell is None and source is not None:
        raise UserError(
            f"the value of the formula {str(source)[:40]} was not saved",
            file=path,
            line=number,
            remedy=SAVE_AGAIN,
        )
    if isinstance(cell, str) and cell in ERRORS and source != cell:
        raise UserError(f"the formula {str(source)[:40]} fails: {cell}", file=path, line=number, remedy="fix it")
    if isinstance(cell, str):
        return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), cell)
    if isinstance(cell, date | datetime | time):
        return cell.isoformat()
    return str(cell) if isinstance(cell, timedelta) else cell


def _ods_cells(file: Path) -> Iterator[tuple[str, Element, list[Element]]]:
    """Yield the sheet of each row, the row and its cells; for a sheet itself, no cells."""
    sheet = ""
    with zipfile.ZipFile(file) as archive, archive.open("content.xml") as content:
        for event, element in ElementTree.iterparse(content, ("start", "end")):
            if event == "start" and element.tag == f"{_TABLE}table":
                if sheet:
                    raise UserError("a cell contains a table", file=file, remedy="remove it")
                sheet = element.get(f"{_TABLE}name", "")
                yield sheet, element, []
            elif event == "end" and element.tag == f"{_TABLE}table":
                sheet = ""
            elif event == "end" and element.tag == f"{_TABLE}table-row" and sheet:
                yield sheet, element, [cell for cell in element if cell.tag.endswith("table-cell")]
                element.clear()


def _ods_rows(file: Path, name: str, path: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number of each row of a sheet that has values, and the values."""
    number = 1
    for sheet, row, cells in _ods_cells(file):
        if sheet != name or row.tag != f"{_TABLE}table-row":
            continue
        repeated = int(row.get(f"{_TABLE}number-rows-repeated", 1))
        values: list[Any] = []
        empty = 0
        for cell in cells:
            count, value = int(cell.get(f"{_TABLE}number-columns-repeated", 1)), _ods_value(cell, path, number)
            if value is None:
                empty += count
                continue
            values += [None] * min(empty, MAX_COLUMNS) + [value] * min(count, MAX_COLUMNS)
            empty = 0
            if len(values) > MAX_COLUMNS:
                raise UserError(f"has more than {MAX_COLUMNS:,} columns", file=path, line=number)
        if values and number + repeated > MAX_ROWS:
            raise UserError(f"has more than {MAX_ROWS:,} rows", file=path, line=number)
        yield from ((number + index, values) for index in range(repeated if values else 0))
        number += repeated


def _has_content(cell: Element) -> bool:
    described = {f"{_OFFICE}value-type", f"{_TABLE}formula"}
    return cell.tag == f"{_TABLE}table-cell" and not described.isdisjoint(cell.attrib)


def _ods_value(cell: Element, path: str, number: int) -> Any:
    """Return the value of a cell; None if it is empty."""
    if cell.tag == f"{_TABLE}covered-table-cell":
        return None
    formula, kind = cell.get(f"{_TABLE}formula"), cell.get(f"{_OFFICE}value-type")
    text = "\n".join("".join(_ods_parts(part)) for part in cell if part.tag in (f"{_TEXT}p", f"{_TEXT}h"))
    if cell.get(_ERROR) == "error" or (formula and (text in ERRORS or text.startswith("Err:"))):
        raise UserError(f"the formula {str(formula)[:40]} fails: {text}", file=path, line=number, remedy="fix it")
    match kind:
        case None if formula:
            problem = f"the value of the formula {formula[:40]} was not saved"
            raise UserError(problem, file=path, line=number, remedy=SAVE_AGAIN)
        case "float" | "percentage" | "currency":
            return float(cell.attrib[f"{_OFFICE}value"])
        case "boolean":
            return cell.attrib[f"{_OFFICE}boolean-value"] == "true"
        case "date":
            return cell.attrib[f"{_OFFICE}date-value"]
        case "time":
            return _ods_time(cell.attrib[f"{_OFFICE}time-value"])
        case None | "string":
            return cell.get(f"{_OFFICE}string-value") or text or None
    raise UserError(f"a cell is of the unknown type {kind}", file=path, line=number)


def _ods_time(duration: str) -> str:
    """Return a duration in ISO 8601 as a time of day is written; one in days and months as it is."""
    match = _DURATION.fullmatch(duration)
    if match is None:
        return duration
    hours, minutes, seconds, fraction = match.groups("")
    fraction = fraction.rstrip("0")
    return f"{int(hours):02}:{int(minutes):02}:{int(seconds):02}" + (f".{fraction}" if fraction else "")


def _ods_parts(element: Element) -> Iterator[str]:
    """Yield the text of a paragraph: white space counts as one space; further ones are elements (section 6.1.2)."""
    match element.tag.removeprefix(_TEXT):
        case "s":
            yield " " * int(element.get(f"{_TEXT}c", 1))
        case "tab":
            yield "\t"
        case "line-break":
            yield "\n"
    yield re.sub("[ \t\r\n]+", " ", element.text or "")
    for part in element:
        if part.tag not in _NO_TEXT:
            yield from _ods_parts(part)
        yield re.sub("[ \t\r\n]+", " ", part.tail or "")


def _header(values: Sequence[Any], path: str, number: int) -> list[str]:
    names = ["" if value is None else str(value).strip() for value in values]
    if twice := next((name for name in names if name and names.count(name) > 1), None):
        raise UserError(f"several columns are named {twice}", file=path, line=number, remedy="rename one")
    return names


def _plain(cell: Any, path: str, number: int) -> Any:
    """Return a value without what is not shown: a whole number as an int, and None for spaces."""
    if isinstance(cell, str):
        if len(cell) > MAX_DOCUMENT:
            raise UserError(f"a text is {TOO_LONG}", file=path, line=number)
        return cell if cell.strip() else None
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell
