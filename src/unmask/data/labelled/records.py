"""Records of labeled examples by column name, wherever they are, also in repositories of data sets.

Input: a file of JSON, Parquet, Arrow, SQLite or Excel, an `ExampleTable`, or a split of a repository in the layout of
the Hugging Face Hub (splits.py): `DIR#SPLIT`, `DIR#CONFIG/SPLIT` or `DIR#FILE`. Output: numbered records, with classes
by their names; the number is that of the line or, where rows are not lines, of the row, from 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unmask.data.labelled.delimited import DelimitedFile, distinct_names
from unmask.data.labelled.json_file import JSON, Place, is_array, is_lines, read_json, suffix_of
from unmask.data.labelled.splits import ARROW, FORMATS, MOST_NAMED, Split, find_split, read_card
from unmask.data.labelled.table import ExampleTable, Source, is_repository
from unmask.data.text.encodings import encoding_of, refuse_encoding, with_encoding
from unmask.data.text.files import display_name, split_part
from unmask.data.text.record_files import Record, has_reader, name_classes, read_arrow, read_file
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument

_NUMBERED = re.compile(r"(.*)-(\d{5})-of-(\d{5})(?!\d)(.*)", re.DOTALL)


def describe_numbers(sources: Iterable[object], labels: Sequence[str]) -> list[str]:
    """Return a note for each repository if all labels are whole numbers, for which it has no names."""
    if not labels or not all(label.removeprefix("-").isdecimal() for label in labels):
        return []
    what = f"the labels are the numbers {', '.join(labels[:MOST_NAMED])}: the data set does not name its classes"
    return [f"{source}: {what}" for source in sources if is_repository(source)]


def read_repository(source: str | Path) -> Iterator[tuple[int, Record]]:
    """Yield the records of a split with their numbers, from 1; see `find_split`.

    Raises:
        UserError: there is no such split; a file is missing or cannot be read; there are not as many rows as README.md
            states.
    """
    folder, part = split_part(source)
    paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    split = find_split(str(folder), paths, read_card(folder), part, script=f"{folder.resolve().name}.py")
    form = _format(split, str(source))
    _check_shards(split.files, folder)
    number = 0
    for path in split.files:
        for _, record in _read_file(with_encoding(folder / path, encoding_of(source)), form):
            number += 1
            named = record if form in ARROW else _numbered(record, split.classes, str(source), number)
            yield number, name_classes(named, split.classes, str(source), number)
    if split.rows not in (None, number):
        raise UserError(
            f"{counted(number, 'row')}, but README.md states {split.rows:,}",
            file=str(source),
            remedy=f"download it again, or, if README.md is out of date, name the files: {folder}#{split.files[0]}",
        )


def _format(split: Split, name: str) -> str:
    """Return the format of all files of a split."""
    suffixes = sorted({suffix_of(path) for path in split.files})
    if len(suffixes) > 1 or suffixes[0] not in FORMATS:
        raise UserError(
            f"its files are {' and '.join(f'.{suffix}' for suffix in suffixes)}",
            file=name,
            remedy=f"name files of one of the formats {', '.join(FORMATS)}",
        )
    return suffixes[0]


def _check_shards(paths: Iterable[str], folder: Path) -> None:
    """Check that of files numbered 00000-of-00005 there are as many."""
    shards = Counter((match[1], match[3], match[4]) for path in paths if (match := _NUMBERED.fullmatch(path)))
    for (start, total, end), number in shards.items():
        if number < int(total):
            raise UserError(
                f"{number} of {counted(int(total), 'file')} {start}-*-of-{total}{end}",
                file=folder,
                remedy="download the others where there is a connection",
            )


def _read_file(path: str | Path, form: str) -> Iterator[tuple[int, Record]]:
    if form in ARROW:
        refuse_encoding(path)
        yield from read_arrow(Path(path))
    elif form in JSON:
        yield from read_json(path)
    else:
        yield from read_table(path, form)


def read_table(path: str | Path, form: str) -> Iterator[tuple[int, Record]]:
    """Yield the rows of a file of cells with a header as records of text, with the number of the line of each.

    Args:
        path: the file.
        form: "csv" or "tsv".

    Raises:
        UserError: the file cannot be read, or a row has not as many cells as the header; names the line.
    """
    table = DelimitedFile(path, form, bool, header=True)
    rows = ((line, cells) for line, cells in table.rows() if cells not in ([], [""]))
    _, header = next(rows, (0, []))
    names = distinct_names(header)
    for line, cells in rows:
        if len(cells) != len(names):
            raise UserError(f"{counted(len(cells), 'column')} where there should be {len(names)}", file=path, line=line)
        yield line, dict(zip(names, cells, strict=True))


def _numbered(record: Record, classes: Mapping[str, Sequence[str]], file: str, line: int) -> Record:
    """Return a record in which classes that are written as text are numbers or names.

    Raises:
        UserError: a text is neither, or may be both.
    """

    def number(column: str, value: Any) -> Any:
        if isinstance(value, list):
            return [number(column, item) for item in value]
        if not isinstance(value, str):
            return value
        names, digits = classes[column], re.fullmatch(r"-?\d{1,9}", value.strip(), re.ASCII) is not None
        if digits and value in names and names.index(value) != int(value):
            raise UserError(f"'{column}' may be class number {value} or the class '{value}'", file=file, line=line)
        if not digits and value not in names:
            raise UserError(f"'{column}' is '{value[:80]}', none of its classes", file=file, line=line)
        return int(value) if digits else value

    return record | {column: number(column, record[column]) for column in classes if column in record}


def has_records(source: Source, kind: str | None) -> bool:
    """Return whether a source is read by `read_records`, by its suffix or the given format."""
    return kind in JSON or is_table(source, kind) or (kind is None and suffix_of(str(source)) in JSON)


def is_table(source: Source, kind: str | None) -> bool:
    """Return whether the records of a source are rows with named columns, rather than values of JSON."""
    if isinstance(source, ExampleTable) or is_repository(source):
        return True
    return kind is None and has_reader(source)


def has_rows(source: Source) -> bool:
    """Return whether a source has rows, a record each, as `datasets` stores them, rather than a single JSON object."""
    if is_table(source, None) or suffix_of(str(source)) in ("jsonl", "ndjson"):
        return True
    assert not isinstance(source, ExampleTable)
    return suffix_of(source) == "json" and str(source) != "-" and (is_array(source) or is_lines(source))


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


def read_placed(source: Source, form: str) -> Iterator[tuple[Place, Record]]:
    """Yield the rows of a source, each with its location; `form` is the name of the data set.

    Raises:
        UserError: the source cannot be read; the message names line or row.
    """
    top = Place(display_name(source), form=form)
    for number, row in read_records(source):
        yield top.inner(f"row {number}"), row
