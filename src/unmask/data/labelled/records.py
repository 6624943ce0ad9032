"""Records of labeled examples by column name, wherever they are.

Input: a file of JSON, Parquet, Arrow, SQLite or Excel, a split of a data set's repository, or an `ExampleTable`.
Output: numbered records; the number is that of the line or, where rows are not lines, of the row, from 1.
"""

from __future__ import annotations

from collections.abc import Iterator

from unmask.data.labelled.json_file import JSON, read_json, suffix_of
from unmask.data.labelled.repository import read_repository
from unmask.data.labelled.table import ExampleTable, Source, is_repository
from unmask.data.text.record_files import Record, has_reader, read_file
from unmask.support.errors import UserError
from unmask.support.messages import argument


def has_records(source: Source, kind: str | None) -> bool:
    """Return whether a source is read by `read_records`, by its suffix or the given format."""
    return kind in JSON or is_table(source, kind) or (kind is None and suffix_of(str(source)) in JSON)


def is_table(source: Source, kind: str | None) -> bool:
    """Return whether the records of a source are rows with named columns, rather than values of JSON."""
    if isinstance(source, ExampleTable) or is_repository(source):
        return True
    return kind is None and has_reader(source)


def read_records(source: Source, kind: str | None = None) -> Iterator[tuple[int, Record]]:
    """Yield the number of each line or row, and its values by column.

    Args:
        source: a file, a directory of `datasets`, a split of a repository, or examples in memory.
        kind: "jsonl" if the suffix does not determine the format.

    Raises:
        UserError: the source cannot be read; the message names line or row.
    """
    if isinstance(source, ExampleTable):
        yield from source.records()
    elif is_repository(source):
        if kind is not None:
            raise UserError(f"{argument('format', kind)} has no effect on a data set", file=source, remedy="remove it")
        yield from read_repository(source)
    elif kind is None and has_reader(source):
        yield from read_file(source)
    else:
        yield from read_json(source)
