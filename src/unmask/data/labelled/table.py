"""Examples in memory as sources of labeled examples, next to files: data frames, data sets, columns, records, texts.

Input: what a program has. Output: an `ExampleTable`, whose records are read by the same code as those of files; its
name and the number of a row, from 1, are the location in errors: `<DataFrame>:3`.

Data frames (pandas, Polars), tables of Arrow and data sets of `datasets` are recognized by their attributes, so none of
these packages is imported.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

from unmask.data.labelled.label_cells import is_missing
from unmask.data.text.encodings import with_encoding
from unmask.data.text.files import split_part
from unmask.data.text.record_files import Record, class_names, name_classes
from unmask.support.choices import check_path
from unmask.support.errors import UserError, refuse_idle

CONTENT = ("text", "label"), ("text", "text_b", "label")
"""Names of the columns of two and of three sequences."""
KINDS = (
    "paths, a data frame, a data set, {'text': […], 'label': […]}, a list of such records, or a tuple (texts, labels) "
    "or (texts, second texts, labels)"
)
_KEPT = (int, float, str, bytes, Decimal, Sequence, Mapping)
"""Types of values that are read or refused as they are."""
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class ExampleTable:
    """Named columns in memory.

    Attributes:
        name: its name in errors.
        columns: the values of each column; all have the same length.
        classes: names of the classes in columns that contain their numbers.
    """

    name: str
    columns: Mapping[str, Sequence[Any]]
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {name: len(values) for name, values in self.columns.items()}
        if len(set(lengths.values())) > 1:
            shown = ", ".join(f"{name} has {length:,}" for name, length in lengths.items())
            raise UserError(f"the columns have different numbers of rows: {shown}", file=self.name)

    def __str__(self) -> str:
        return self.name

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def records(self) -> Iterator[tuple[int, Record]]:
        """Yield the number of each row, from 1, and its values by column, as files have them.

        Raises:
            UserError: the number of a class has no name, or a text has a lone surrogate.
        """
        for number, values in enumerate(zip(*self.columns.values(), strict=True), 1):
            record = dict(zip(self.columns, map(_plain, values), strict=True))
            for column, value in record.items():
                _check_characters(column, value, self.name, number)
            yield number, name_classes(record, self.classes, self.name, number) if self.classes else record


Source: TypeAlias = str | Path | ExampleTable
"""A labeled file, or examples in memory."""
Data: TypeAlias = Any
"""One or more paths, or examples in memory, as `as_sources` takes them."""


def as_sources(data: Data, encoding: str | None = None) -> list[Source]:
    """Return labeled examples, wherever they are, as a list of sources.

    Args:
        data: a path or several, also URLs of files, or names of data sets on the Hub (see hub_data.py); a pandas or
            Polars data frame, a pyarrow table, or a data set of `datasets`; a mapping of column names to values;
            records; a tuple of texts and labels, or of texts, second texts and labels (for token classification, of
            lists of words and lists of tags).
        encoding: encoding of the files, which becomes part of their paths; None: they are taken as they are.

    Raises:
        UserError: it is something else, such as a list of texts, the columns have different lengths, or examples in
            memory have an encoding; a data set cannot be downloaded.
    """
    sources: Sequence[Source]
    if isinstance(data, str | Path | ExampleTable):
        sources = [data]
    elif isinstance(data, list | tuple) and all(isinstance(source, str | Path | ExampleTable) for source in data):
        sources = data
    else:
        sources = [as_table(data)]
    return [_with_encoding(source, encoding) for source in sources]


def _with_encoding(source: Source, encoding: str | None) -> Source:
    if not isinstance(source, ExampleTable):
        from unmask.data.labelled.hub_data import is_url, locate  # which reads descriptions of data sets

        if not is_url(source):
            check_path(split_part(source)[0])
        return with_encoding(locate(source), encoding)
    refuse_idle("on examples in memory", encoding=encoding is not None)
    return source


def check_once(sources: Iterable[Source]) -> None:
    """Check that no file is given twice, by whatever paths, as its examples would count twice.

    Raises:
        UserError: one is, such as by two patterns that both match it.
    """
    seen = set[str]()
    for source in sources:
        if isinstance(source, ExampleTable):
            continue
        if (place := os.path.realpath(source)) in seen:
            problem = "the file is given twice, so its examples would count twice"
            raise UserError(problem, file=source, remedy="omit one")
        seen.add(place)


def is_repository(source: object) -> bool:
    """Return whether a source is a split of a repository: a directory with something after a `#`."""
    if not isinstance(source, str | Path):
        return False
    folder, part = split_part(source)
    return bool(part) and folder.is_dir()


def is_table(data: object) -> bool:
    """Return whether an object is a data frame, a table, a data set or a mapping of columns, rather than texts."""
    return isinstance(data, ExampleTable | Mapping) or _has(data, "columns") or _has(data, "column_names")


def as_table(data: Data) -> ExampleTable:
    """Return examples in memory as a table; see `as_sources`.

    Raises:
        UserError: they are no examples, or the columns have different lengths.
    """
    name = f"<{type(data).__name__}>"
    if isinstance(data, ExampleTable):
        return data
    if _has(data, "collect_schema") and hasattr(data, "collect"):
        data = data.collect()  # of Polars, a query that has not been computed
    if isinstance(data, Mapping):
        if any(_has(part, "column_names") for part in data.values()):
            raise UserError("there are several splits", file=name, remedy=f"pass one of {', '.join(map(str, data))}")
        _check_different(data, name)
        return ExampleTable(name, {str(key): column_values(values, name) for key, values in data.items()})
    if _has(data, "column_names") and _has(data, "features"):  # of datasets
        names = data.column_names
        return ExampleTable(
            name, {column: column_values(data[column], name) for column in names}, class_names(data.features.to_dict())
        )
    if _has(data, "column_names") and hasattr(data, "to_pydict"):  # of pyarrow
        _check_different(data.column_names, name)
        return ExampleTable(name, data.to_pydict())
    if _has(data, "columns"):
        _check_different(data.columns, name)
        return ExampleTable(name, {str(column): column_values(data[column], name) for column in data.columns})
    if isinstance(data, tuple) and len(data) in (2, 3) and not any(isinstance(part, str | Mapping) for part in data):
        names = CONTENT[len(data) - 2]
        return ExampleTable("<texts>", dict(zip(names, (column_values(part, name) for part in data), strict=True)))
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return _from_records(list(data), name)
    raise UserError(f"{type(data).__name__} is not a source of examples", remedy=f"pass {KINDS}")


def _from_records(records: list[Any], name: str) -> ExampleTable:
    if not records or not all(isinstance(record, Mapping) for record in records):
        what = "nothing" if not records else f"a sequence of {type(records[0]).__name__}"
        raise UserError(f"{what} is not a source of examples", file=name, remedy=f"pass {KINDS}")
    names = dict.fromkeys(key for record in records for key in record)
    return ExampleTable(name, {str(key): [record.get(key) for record in records] for key in names})


def _has(data: object, attribute: str) -> bool:
    return not isinstance(data, type) and not isinstance(data, str | Path) and hasattr(data, attribute)


def _plain(value: Any) -> Any:
    """Return a value as files have it: times, and what JSON has not, such as pandas.Period, as text; None for NA."""
    if hasattr(value, "tolist"):  # of numpy
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, set | frozenset):  # in an order of its own in each process
        return sorted(value, key=repr)
    if value is None or isinstance(value, _KEPT):
        return value
    if is_missing(value):
        return None
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _check_characters(column: str, value: Any, name: str, line: int) -> None:
    """Check that texts, also those in lists, can be encoded; files have no others, but JSON and Python do.

    Raises:
        UserError: one has half of a character beyond U+FFFF.
    """
    for text in value if isinstance(value, list | tuple) else (value,):
        if isinstance(text, str) and not text.isascii() and (half := _SURROGATE.search(text)):
            raise UserError(
                f"'{column}': character {half.start() + 1} is a lone surrogate, half of a character",
                file=name,
                line=line,
                remedy="cut texts between characters, or replace it by U+FFFD",
            )


def _check_different(columns: Iterable[Any], name: str) -> None:
    """Check that columns have different names.

    Raises:
        UserError: they do not: which one is meant is not known.
    """
    for column, number in Counter(map(str, columns)).items():
        if number > 1:
            raise UserError(f"{number} columns are named {column}", file=name, remedy="rename one")


def column_values(values: Any, name: str) -> list[Any]:
    """Return the values of a column as Python's own types; columns of numpy, pandas and Polars convert themselves.

    Args:
        values: the column.
        name: where it is, for errors.

    Raises:
        UserError: it is not a sequence.
    """
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(values, method):
            values = getattr(values, method)()
            break
    if isinstance(values, str | set | frozenset | Mapping) or not isinstance(values, Iterable):
        raise UserError(
            f"a column is {type(values).__name__}, not a sequence",
            file=name,
            remedy="pass a list, in the order of rows",
        )
    return [value.tolist() if hasattr(value, "tolist") else value for value in values]
