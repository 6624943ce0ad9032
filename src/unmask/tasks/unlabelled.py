"""Examples without labels, and notes about examples whose texts look damaged (`unmask.data.text.damage`).

Input: files, or tables in memory. Output: examples of a task, or rows of texts where there is no task; damaged texts
are used as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from unmask.data.labelled.labelled_file import Row, is_plain, iterate_texts, read_rows, read_texts
from unmask.data.labelled.table import Data, Source, as_sources
from unmask.data.text.damage import DamagedTexts, find_damage
from unmask.support.errors import EmptySource
from unmask.tasks.holding_out import place_of
from unmask.tasks.rows import as_rows, texts_of
from unmask.tasks.task import Columns, Task

Example = TypeVar("Example")


def read_unlabeled(data: Data, *, columns: Columns, kind: str | None, notes: list[str]) -> list[Row]:
    """Return the texts, or pairs of them, of files or tables as rows without a label.

    Args:
        data: see `unmask.data.labelled.table.as_sources`; a `.txt` file has one text per line.
        columns: mapping of our column names to those of the data.
        kind: format of the files, if the suffix does not determine it.
        notes: receives a line for each reason why rows were omitted, for each of several sources that has none, and one
            if texts look damaged.

    Raises:
        UserError: the data is malformed, or all of it is empty; names file and line, or row.
    """

    def read(source: Source) -> list[Row]:
        if is_plain(source, kind):
            return as_rows(read_texts(source, columns=columns, notes=notes))
        return read_rows([source], columns=columns, kind=kind, gold=False, notes=notes)

    rows = list(chain_sources(as_sources(data), read, notes))
    notes += describe_damaged(rows, texts_of)
    return rows


def read_examples(task: Task, data: Data, *, columns: Columns, kind: str | None, notes: list[str]) -> list[Any]:
    """Return files or tables as examples of a task; the arguments and errors are those of `read_unlabeled`.

    A `.txt` file has one text per line, unless the task is trained on pairs.
    """
    read = partial(read_source, task, columns=columns, kind=kind, notes=notes)
    examples = list(chain_sources(as_sources(data), read, notes))
    notes += describe_damaged(examples, task.texts)
    return examples


def chain_sources(
    sources: Iterable[Source], read: Callable[[Source], Iterable[Example]], notes: list[str]
) -> Iterator[Example]:
    """Yield the examples of several sources; those that are empty get a note each, if not all of them are.

    Raises:
        EmptySource: there are no examples.
    """
    count, empty = 0, list[EmptySource]()
    for source in sources:
        try:
            for example in read(source):
                count += 1
                yield example
        except EmptySource as error:
            empty.append(error)
    if empty and not count:
        raise empty[0]
    notes += map(str, empty)


def read_source(task: Task, source: Source, *, columns: Columns, kind: str | None, notes: list[str]) -> list[Any]:
    """Return what `read_examples` returns for a file or a table, without a note about damaged texts."""
    if _has_lines(source, kind, task):
        return task.from_texts(read_texts(source, columns=columns, notes=notes))
    return task.read([source], columns=columns, kind=kind, gold=False, notes=notes)


def iterate_examples(
    task: Task, path: Source, *, columns: Columns, kind: str | None, notes: list[str]
) -> Iterator[Any]:
    """Yield what `read_examples` returns for a file or a table; see `Task.iterate`."""
    if _has_lines(path, kind, task):
        texts = iterate_texts(path, columns=columns, notes=notes)
        examples: Iterator[Any] = chain.from_iterable(task.from_texts([text]) for text in texts)
    else:
        examples = task.iterate(path, columns=columns, kind=kind, notes=notes)
    damaged = DamagedTexts()
    yield from count_damaged(examples, task.texts, damaged)
    notes += damaged.notes("example")


def count_damaged(
    examples: Iterable[Example], texts: Callable[[Example], Sequence[str]], damaged: DamagedTexts
) -> Iterator[Example]:
    """Yield the examples, and count those that look damaged.

    Args:
        examples: the examples.
        texts: returns the texts of an example, such as `Task.texts`.
        damaged: receives the count.
    """
    for example in examples:
        for text in texts(example):
            if damage := find_damage(text):
                damaged.add(damage, place_of(example))
                break
        yield example


def describe_damaged(examples: Iterable[Example], texts: Callable[[Example], Sequence[str]]) -> list[str]:
    """Return a note about the examples that look damaged, if there are any; see `count_damaged`."""
    damaged = DamagedTexts()
    deque(count_damaged(examples, texts, damaged), 0)
    return damaged.notes("example")


def _has_lines(source: Source, kind: str | None, task: Task) -> TypeGuard[str | Path]:
    """Return whether a source has one text per line, which cannot be a pair."""
    return is_plain(source, kind) and not (kind is None and task.pairs)
