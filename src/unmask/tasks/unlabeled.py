"""Data without labels: files with columns or with one text per line, and tables.

Input: files, or examples in memory. Output: examples of a task, or rows of texts where there is no task.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

from unmask.data.labelled.labelled_file import Row, is_plain, iterate_texts, read_rows, read_texts
from unmask.data.labelled.table import Data, Source, as_sources
from unmask.tasks.rows import as_rows
from unmask.tasks.task import Columns, Task


def read_unlabeled(data: Data, *, columns: Columns, kind: str | None, notes: list[str]) -> list[Row]:
    """Return the texts, or pairs of them, of files or tables as rows without a label.

    Args:
        data: see `unmask.data.labelled.table.as_sources`; a `.txt` file has one text per line.
        columns: mapping of our column names to those of the data.
        kind: format of the files, if the suffix does not determine it.
        notes: receives a line for each reason why rows were omitted.

    Raises:
        UserError: the data is malformed; names file and line, or row.
    """
    rows = []
    for source in as_sources(data):
        if is_plain(source, kind):
            rows += as_rows(read_texts(source, columns=columns, notes=notes))
        else:
            rows += read_rows([source], columns=columns, kind=kind, gold=False, notes=notes)
    return rows


def read_examples(task: Task, data: Data, *, columns: Columns, kind: str | None, notes: list[str]) -> list[Any]:
    """Return files or tables as examples of a task; the arguments and errors are those of `read_unlabeled`.

    A `.txt` file has one text per line, unless the task is trained on pairs.
    """
    found = list[Any]()
    for source in as_sources(data):
        if _has_lines(source, kind, task):
            found += task.from_texts(read_texts(source, columns=columns, notes=notes))
        else:
            found += task.read([source], columns=columns, kind=kind, gold=False, notes=notes)
    return found


def iterate_examples(
    task: Task, path: str | Path, *, columns: Columns, kind: str | None, notes: list[str]
) -> Iterator[Any]:
    """Yield what `read_examples` returns for a file; see `Task.iterate`."""
    if _has_lines(path, kind, task):
        for text in iterate_texts(path, columns=columns, notes=notes):
            yield from task.from_texts([text])
    else:
        yield from task.iterate(path, columns=columns, kind=kind, notes=notes)


def _has_lines(source: Source, kind: str | None, task: Task) -> TypeGuard[str | Path]:
    """Return whether a source has one text per line, which cannot be a pair."""
    of_pairs = kind is None and getattr(task, "pairs", None)
    return is_plain(source, kind) and not of_pairs
