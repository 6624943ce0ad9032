"""Reader of OpenDocument spreadsheets (.ods), as LibreOffice and Google Sheets write them: the rows of a sheet.

Input and output are those of xlsx_file.py, with dates as ISO 8601 text, times as `13:05:00`, and percentages as shares.
Comments, and cells that are covered by merged ones, are left out.

Values are read from the XML (OpenDocument 1.3, part 3): libraries leave out spaces, tabs and formulas that fail. Rows
and columns that are repeated to the end of a sheet are empty, and take no memory.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from unmask.data.text.files import split_part
from unmask.data.text.spreadsheet import ERRORS, SAVE_AGAIN, check_size, choose_sheet, read_records
from unmask.support.errors import UserError

MAX_ROWS, MAX_COLUMNS = 1 << 24, 1 << 14
"""The largest sheets of LibreOffice; more repeated rows and columns than these are refused."""
_OASIS = "{urn:oasis:names:tc:opendocument:xmlns:"
_OFFICE, _TABLE, _TEXT = f"{_OASIS}office:1.0}}", f"{_OASIS}table:1.0}}", f"{_OASIS}text:1.0}}"
_ERROR = "{urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0}value-type"
_DURATION = re.compile(r"PT(\d+)H(\d+)M(\d+)(?:[.,](\d+))?S")
_NO_TEXT = (f"{_OFFICE}annotation", f"{_TEXT}ruby-text", f"{_TEXT}note")

Element = ElementTree.Element


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
        for sheet, _, cells in _cells(file):
            sheets[sheet] = sheets.get(sheet, False) or any(map(_has_content, cells))
        name = choose_sheet(sheets, file, part)
        yield from read_records(_rows(file, name, str(path)), str(path))
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror or error})", file=file) from error
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, NotImplementedError, ElementTree.ParseError) as error:
        raise UserError(f"cannot be read as ods ({str(error)[:200]})", file=file) from error


def _cells(file: Path) -> Iterator[tuple[str, Element, list[Element]]]:
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


def _rows(file: Path, name: str, path: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number of each row of a sheet that has values, and the values."""
    number = 1
    for sheet, row, cells in _cells(file):
        if sheet != name or row.tag != f"{_TABLE}table-row":
            continue
        repeated = int(row.get(f"{_TABLE}number-rows-repeated", 1))
        values: list[Any] = []
        empty = 0
        for cell in cells:
            count, value = int(cell.get(f"{_TABLE}number-columns-repeated", 1)), _value(cell, path, number)
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


def _value(cell: Element, path: str, number: int) -> Any:
    """Return the value of a cell; None if it is empty."""
    if cell.tag == f"{_TABLE}covered-table-cell":
        return None
    formula, kind = cell.get(f"{_TABLE}formula"), cell.get(f"{_OFFICE}value-type")
    text = "\n".join(_text(part) for part in cell if part.tag in (f"{_TEXT}p", f"{_TEXT}h"))
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
            return _time(cell.attrib[f"{_OFFICE}time-value"])
        case None | "string":
            return cell.get(f"{_OFFICE}string-value") or text or None
    raise UserError(f"a cell is of the unknown type {kind}", file=path, line=number)


def _time(duration: str) -> str:
    """Return a duration in ISO 8601 as a time of day is written; one in days and months as it is."""
    match = _DURATION.fullmatch(duration)
    if match is None:
        return duration
    hours, minutes, seconds, fraction = match.groups("")
    fraction = fraction.rstrip("0")
    return f"{int(hours):02}:{int(minutes):02}:{int(seconds):02}" + (f".{fraction}" if fraction else "")


def _text(element: Element) -> str:
    """Return the text of a paragraph: white space counts as one space; further ones are elements (section 6.1.2)."""
    return "".join(_parts(element))


def _parts(element: Element) -> Iterator[str]:
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
            yield from _parts(part)
        yield re.sub("[ \t\r\n]+", " ", part.tail or "")
