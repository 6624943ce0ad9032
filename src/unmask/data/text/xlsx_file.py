"""Reader of Excel's workbooks (.xlsx): the rows of a sheet whose first row is a header.

Input: `FILE`, if one sheet has rows, or `FILE#SHEET`. Output: records, numbered as the rows of the sheet, of texts,
numbers, truth values and dates as ISO 8601 text; empty cells are None. A whole number is an int, as Excel shows it.
Empty rows, and empty columns without a name, are left out.

Needs openpyxl (the extra `excel`), which reads row by row. The sizes that the archive declares are bounded as those of
other compressed files (`MAX_RATIO`); zipfile reads no more than they say.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from unmask.data.text.files import FREE, MAX_DOCUMENT, MAX_RATIO, TOO_LONG, expands_too_much, split_part
from unmask.support.errors import UserError

ERRORS = ("#DIV/0!", "#N/A", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!")
"""What Excel shows for a formula that fails."""


def read_xlsx(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the rows of a sheet.

    Yields:
        The number of the row in the sheet, from 1, and its values by the names in the first row.

    Raises:
        UserError: openpyxl is missing, the file is no workbook or expands too much, it has several sheets with rows of
            which none is named, or a row is not as described; the message names it.
    """
    file, part = split_part(path)
    try:
        import openpyxl
    except ImportError as error:
        raise UserError("needs openpyxl", file=file, remedy="pip install 'unmask[excel]'") from error
    try:
        _check_size(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles
            values = openpyxl.load_workbook(file, read_only=True, data_only=True)
            formulas = openpyxl.load_workbook(file, read_only=True)
        with closing(values), closing(formulas):
            for sheet in (*values.worksheets, *formulas.worksheets):
                sheet.reset_dimensions()  # what they declare may be too large
            name = _sheet(values, file, part)
            yield from _records(values[name], formulas[name], str(path))
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror or error})", file=file) from error
    except (zipfile.BadZipFile, KeyError, ValueError, SyntaxError, EOFError) as error:  # SyntaxError: of XML
        raise UserError(f"cannot be read as xlsx ({str(error)[:200]})", file=file) from error


def _check_size(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        if sum(member.file_size for member in archive.infolist()) > max(FREE, MAX_RATIO * file.stat().st_size):
            raise expands_too_much(file)


def _sheet(book: Any, file: Path, part: str) -> str:
    """Return the name of the sheet that is named, or of the only one with rows."""
    names = [sheet.title for sheet in book.worksheets]
    chosen = [part] if part in names else []
    if not part:
        chosen = [sheet.title for sheet in book.worksheets if _has_rows(sheet)]
    if len(chosen) != 1:
        raise UserError(
            f"there is no sheet '{part}'" if part else f"{len(chosen)} sheets have rows",
            file=file,
            remedy=f"name one: {', '.join(f'{file}#{name}' for name in (chosen or names)[:10])}",
        )
    return str(chosen[0])


def _has_rows(sheet: Any) -> bool:
    return any(cell is not None for row in sheet.iter_rows(values_only=True) for cell in row)


def _records(sheet: Any, formulas: Any, path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows below the header, given the sheet with values, and with formulas in place of theirs."""
    names: list[str] | None = None
    both = zip(sheet.iter_rows(values_only=True), formulas.iter_rows(values_only=True), strict=True)
    for number, (cells, sources) in enumerate(both, 1):
        values = [_value(cell, source, path, number) for cell, source in zip(cells, sources, strict=True)]
        while values and values[-1] is None:
            values.pop()
        if not values:
            continue
        if names is None:
            names = _header(values, path, number)
            continue
        if len(values) > len(names):
            raise UserError(f"the header names {len(names)} columns, the row has {len(values)}", file=path, line=number)
        values += [None] * (len(names) - len(values))
        for name, value in zip(names, values, strict=True):
            if not name and value is not None:
                raise UserError("a column without a name has values", file=path, line=number, remedy="name it")
        yield number, {name: value for name, value in zip(names, values, strict=True) if name}


def _header(values: Sequence[Any], path: str, number: int) -> list[str]:
    names = ["" if value is None else str(value).strip() for value in values]
    if twice := next((name for name in names if name and names.count(name) > 1), None):
        raise UserError(f"several columns are named {twice}", file=path, line=number, remedy="rename one")
    return names


def _value(cell: Any, source: Any, path: str, number: int) -> Any:
    """Return the value of a cell, given its formula, if it has one."""
    if cell is None and source is not None:
        raise UserError(
            f"the value of the formula {str(source)[:40]} was not saved",
            file=path,
            line=number,
            remedy="open the file in Excel or LibreOffice, and save it again",
        )
    if isinstance(cell, str):
        if cell in ERRORS and source != cell:
            raise UserError(f"the formula {str(source)[:40]} fails: {cell}", file=path, line=number, remedy="fix it")
        if len(cell) > MAX_DOCUMENT:
            raise UserError(f"a text is {TOO_LONG}", file=path, line=number)
        return cell if cell.strip() else None
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    if isinstance(cell, date | datetime | time):
        return cell.isoformat()
    return str(cell) if isinstance(cell, timedelta) else cell
