"""Reader of SQLite databases: a table, or the rows of a query.

Input: `FILE`, if it has one table; `FILE#TABLE`, or `FILE#SELECT …`. Output: numbered records of texts and numbers;
columns of bytes are not read. The database is opened read-only, and the query can do nothing but read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from unmask.data.text.files import MAX_DOCUMENT, TOO_LONG, split_part
from unmask.support.errors import UserError

_ALLOWED = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE),
)


def read_sqlite(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the rows of a table or of a query.

    Yields:
        The number of the row, from 1, and its values by column.

    Raises:
        UserError: the file is no database, has several tables of which none is named, the query is not a SELECT or
            fails, or a text is too long or not UTF-8.
    """
    file, part = split_part(path)
    number = 0
    try:
        if not file.is_file():
            raise UserError("there is no such file", file=file)
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4 * MAX_DOCUMENT)  # bytes of a value, and of a row
            is_query = part.lower().startswith(("select ", "with "))
            query = part if is_query else _table(database, file, part)
            database.set_authorizer(_only_reading)
            rows = database.execute(query)
            names = [column[0] for column in rows.description or ()]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise UserError(
                    f"several columns are named {twice}", file=path, remedy=f"select {twice} AS another name"
                )
            for values in rows:
                number += 1
                if any(isinstance(value, str) and len(value) > MAX_DOCUMENT for value in values):
                    raise UserError(f"a text is {TOO_LONG}", file=path, line=number)
                record = zip(names, values, strict=True)
                yield number, {name: value for name, value in record if not isinstance(value, bytes)}
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise UserError(
            f"cannot be read as SQLite ({error})", file=path, line=number + 1 if number else None
        ) from error


def _table(database: sqlite3.Connection, file: Path, part: str) -> str:
    """Return the query for all rows of the table that is named, or of the only one."""
    listed = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
    names = [name for (name,) in listed if not name.startswith("sqlite_")]
    chosen = [name for name in names if name == part or not part]
    if len(chosen) != 1:
        raise UserError(
            f"there is no table '{part}'" if part else f"there are {len(names)} tables",
            file=file,
            remedy=f"name one: {', '.join(f'{file}#{name}' for name in names[:10])}" if names else "",
        )
    quoted = chosen[0].replace('"', '""')
    return f'SELECT * FROM "{quoted}"'


def _only_reading(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
