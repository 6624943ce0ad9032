"""Predictions as tables: the columns of the input with those of the predictions, in CSV, TSV, Parquet or Excel."""

from __future__ import annotations

import csv
import io
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from unmask.data.labelled.label_cells import OTHERS, SEPARATOR, is_closed
from unmask.data.labelled.labelled_file import TEXTS, Row
from unmask.data.text.files import import_pyarrow
from unmask.data.text.spreadsheet import import_openpyxl, write_xlsx
from unmask.support.errors import UserError

TABLES = (".csv", ".tsv", ".parquet", ".xlsx")
"""Suffixes of files that are tables."""
UNWRITTEN = (".xls", ".ods", ".arrow", ".feather", ".conllu", ".conllup", ".ann", ".spacy")
"""Suffixes of formats that are read, and not written."""
_BREAKS = frozenset("\t\r\n")
LIBRARIES = {".parquet": import_pyarrow, ".xlsx": import_openpyxl}
"""Functions that import the library that a format needs."""
BATCH = 10_000
"""Rows that are written at a time."""


def free_name(name: str, prefix: str, taken: Container[str]) -> str:
    """Return a name of a column, preceded by a prefix as often as it takes to be none of those that are taken."""
    while name in taken:
        name = f"{prefix}{name}"
    return name


def with_columns(example: Row, prediction: Any) -> Any:
    """Return a prediction with the columns of its row, for JSON Lines.

    A column that is named as a field of the prediction, also one that is only written of some rows, but differs from
    it, is preceded by `input_`: a label that the file had is `input_label`; see `free_name`.
    """
    source = _source(example)
    if not source:
        return prediction
    fields = msgspec.to_builtins(prediction)
    own = {*fields, *getattr(prediction, "__struct_fields__", ())}
    columns, taken = dict(fields), own | source.keys()
    for name, value in source.items():
        if name not in own:
            columns[name] = value
        elif name not in TEXTS or str(value).strip() != str(fields.get(name)).strip():
            columns[free_name(f"input_{name}", "input_", taken)] = value
    return columns


def as_row(example: Row, prediction: Any) -> dict[str, Any]:
    """Return the columns of a row, and those of its prediction.

    Labels are in the column `predicted`, several as multi-label reads them, each score in one of its own
    (`scores:LABEL`). A name that the input has is preceded by `predicted_`; see `free_name`.
    """
    source = _source(example) or example.values
    columns = dict(source)
    for name, value in msgspec.to_builtins(prediction).items():
        if name in TEXTS:
            continue
        name = "predicted" if name in ("label", "labels", "score") else name
        cells = {f"{name}:{key}": cell for key, cell in value.items()} if isinstance(value, dict) else {name: value}
        for column, cell in cells.items():
            free = free_name(column, "predicted_", source)
            columns[free] = _joined(cell) if isinstance(cell, list | tuple) else cell
    return columns


def _joined(values: Sequence[Any]) -> str:
    """Return labels, or numbers, as one cell; where a name has what may separate labels, as the list that is read."""
    names = list(map(str, values))
    joined = SEPARATOR.join(names)
    separated = any(mark in name for name in names for mark in (SEPARATOR, *OTHERS))
    misread = joined.startswith(("[", "{", "(", '"')) or not all(map(is_closed, names))
    return msgspec.json.encode(values).decode() if separated or misread else joined


def _source(example: Row) -> Mapping[str, Any]:
    return example.source or {}


def write_table(suffix: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield the content of a table; its columns are those of the first row, and then those of later ones.

    Parquet and workbooks are made in memory, the others as the rows come.

    Args:
        suffix: one of `TABLES`.
        rows: the rows; they are iterated over twice.

    Raises:
        UserError: a cell of a TSV file contains a tab or a line break, a column of Parquet has values of several types,
            Excel cannot hold it, or a library is missing.
    """
    if suffix == ".parquet":
        yield _parquet(list(rows))
        return
    names = _names(rows)
    if suffix == ".xlsx":
        yield write_xlsx(names, rows)
        return
    text = io.StringIO()
    writer = csv.writer(_Lines(text)) if suffix == ".csv" else _TsvWriter(text)
    writer.writerow(names)
    for number, row in enumerate(rows, start=1):
        writer.writerow([row.get(name) for name in names])
        if number % BATCH == 0:
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode()


def check_library(path: Path) -> None:
    """Check that what a file needs is installed, before there is anything to write.

    Raises:
        UserError: it is not.
    """
    if path.suffix in LIBRARIES:
        LIBRARIES[path.suffix](path)


def write_rows(suffix: str, rows: Sequence[Any]) -> bytes:
    """Return rows as a table or, if the suffix is not one of `TABLES`, as JSON Lines.

    Raises:
        UserError: see `write_table`.
    """
    return b"".join(write_table(suffix, rows)) if suffix in TABLES else msgspec.json.Encoder().encode_lines(rows)


def _names(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the columns that any row has."""
    return list(dict.fromkeys(name for row in rows for name in row))


def check_cells(suffix: str, cells: Iterable[str]) -> None:
    """Check that a table can hold texts.

    Raises:
        UserError: one of a TSV file contains a tab or a line break.
    """
    for cell in cells if suffix == ".tsv" else ():
        if not _BREAKS.isdisjoint(cell):
            raise UserError(
                f"TSV cannot hold the tab or line break in '{cell[:80]}'",
                remedy="write .csv, .jsonl or .parquet instead",
            )


class _Lines:
    r"""Receives the rows of `csv.writer`, which end in \r\n, and writes them with \n.

    Python 3.11 quotes a cell only for the line breaks that are in the writer's own line end: with \n alone it would not
    quote a lone carriage return, at which readers end the row.
    """

    def __init__(self, text: io.StringIO) -> None:
        self.text = text

    def write(self, row: str) -> int:
        """Write a row."""
        return self.text.write(row.removesuffix("\r\n") + "\n")


class _TsvWriter:
    """Writer of rows without quoting, with the interface of `csv.writer`."""

    def __init__(self, text: io.StringIO) -> None:
        self.text = text

    def writerow(self, cells: Sequence[Any]) -> None:
        """Write a row."""
        written = ["" if cell is None else str(cell) for cell in cells]
        check_cells(".tsv", written)
        self.text.write("\t".join(written) + "\n")


def _parquet(rows: Sequence[Mapping[str, Any]]) -> bytes:
    arrow = import_pyarrow("predictions")
    from pyarrow import parquet

    columns = {}
    for name in _names(rows):
        try:
            columns[name] = arrow.array([row.get(name) for row in rows])
        except (arrow.ArrowException, OverflowError) as error:
            raise UserError(
                f"Parquet cannot hold the column '{name}' ({error})", remedy="write .csv or .jsonl instead"
            ) from error
    content = io.BytesIO()
    parquet.write_table(arrow.table(columns), content)
    return content.getvalue()
