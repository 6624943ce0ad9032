"""What readers of spreadsheets share: the choice of a sheet, and its rows as records under the names of the header."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.data.text.files import FREE, MAX_DOCUMENT, MAX_RATIO, TOO_LONG, expands_too_much
from unmask.support.errors import UserError

ERRORS = ("#DIV/0!", "#N/A", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!")
"""What is shown for a formula that fails."""
SAVE_AGAIN = "open the file in Excel or LibreOffice, and save it again"


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


def _plain(cell: Any, path: str, number: int) -> Any:
    """Return a value without what is not shown: a whole number as an int, and None for spaces."""
    if isinstance(cell, str):
        if len(cell) > MAX_DOCUMENT:
            raise UserError(f"a text is {TOO_LONG}", file=path, line=number)
        return cell if cell.strip() else None
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell
