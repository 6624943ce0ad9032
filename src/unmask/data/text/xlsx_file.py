"""Reader of Excel's workbooks (.xlsx): the rows of a sheet whose first row is a header.

Input: `FILE`, if one sheet has rows, or `FILE#SHEET`. Output: records, numbered as the rows of the sheet, of texts,
numbers, truth values and dates as ISO 8601 text; empty cells are None. A whole number is an int, as Excel shows it.
Empty rows, and empty columns without a name, are left out.

Needs openpyxl (the extra `excel`), which reads row by row. The sizes that the archive declares are bounded as those of
other compressed files (`MAX_RATIO`).
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from unmask.data.text.files import split_part
from unmask.data.text.spreadsheet import ERRORS, SAVE_AGAIN, check_size, choose_sheet, read_records
from unmask.support.errors import UserError


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
        check_size(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles
            values = openpyxl.load_workbook(file, read_only=True, data_only=True)
            formulas = openpyxl.load_workbook(file, read_only=True)
        with closing(values), closing(formulas):
            for sheet in (*values.worksheets, *formulas.worksheets):
                sheet.reset_dimensions()  # what they declare may be too large
            name = choose_sheet({sheet.title: _has_rows(sheet) for sheet in values.worksheets}, file, part)
            yield from read_records(_rows(values[name], formulas[name], str(path)), str(path))
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror or error})", file=file) from error
    except (zipfile.BadZipFile, KeyError, ValueError, SyntaxError, EOFError) as error:  # SyntaxError: of XML
        raise UserError(f"cannot be read as xlsx ({str(error)[:200]})", file=file) from error


def _has_rows(sheet: Any) -> bool:
    return any(cell is not None for row in sheet.iter_rows(values_only=True) for cell in row)


def _rows(sheet: Any, formulas: Any, path: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number of each row and its values, given the sheet with values, and with formulas in their place."""
    both = zip(sheet.iter_rows(values_only=True), formulas.iter_rows(values_only=True), strict=True)
    for number, (cells, sources) in enumerate(both, 1):
        yield number, [_value(cell, source, path, number) for cell, source in zip(cells, sources, strict=True)]


def _value(cell: Any, source: Any, path: str, number: int) -> Any:
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
    if isinstance(cell, date | datetime | time):
        return cell.isoformat()
    return str(cell) if isinstance(cell, timedelta) else cell
