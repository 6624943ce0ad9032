"""Files of records, for text and for labeled examples, by suffix.

Parquet and Arrow, SQLite (sqlite_file.py), spreadsheets (spreadsheet.py), and those of installed packages.

`read_arrow` reads Parquet and Arrow files, and directories that `datasets` writes (`save_to_disk`), row by row.

Input: a `.parquet`, `.arrow` or `.feather` file, or a directory with `state.json`. Output: numbered records of the
columns of texts, numbers, truth values, lists and structures of them; dates, times and decimal numbers are read as
text; other columns (images) are not read. Numbers of classes are replaced by their names, if the schema has those of
`datasets` (`ClassLabel`, also in lists).

Needs pyarrow (the extra `arrow`). The limits of `files.py` apply: `MAX_DOCUMENT` to each text, and `MAX_RATIO` both to
the sizes that a file declares (arrow_sizes.py) and to what is read. A file of a kilobyte can hold a text once and
name it in every row: what rows take as Python objects is computed from the lengths before they are made
(arrow_sizes.py), and Parquet is decoded a few rows at a time. Nothing is memory-mapped, and the offsets inside each
batch are validated before they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from unmask.data.text.arrow_sizes import decompressed_size, sizes_of_rows, sizes_of_values, split_rows
from unmask.data.text.encodings import refuse_encoding
from unmask.data.text.files import (
    FREE,
    MAX_DOCUMENT,
    MAX_RATIO,
    TOO_LONG,
    DamagedError,
    expands_too_much,
    import_pyarrow,
    on_disk,
    read_whole,
    split_part,
)
from unmask.data.text.section import Section, fingerprint_bytes
from unmask.support.errors import UserError
from unmask.support.fingerprint import fingerprint_path, fingerprint_values
from unmask.support.plugins import Registry
from unmask.support.urls import address_of

STATE, SPLITS, METADATA = "state.json", "dataset_dict.json", b"huggingface"
"""Files of directories of `datasets`, and where they keep the features in a schema's metadata."""
IGNORED = -100
"""The class of what is not learned, such as the pieces of a word after its first one, in data for `transformers`."""
BATCH = 1000
"""Number of rows that are Python objects at once, at most."""
MAX_NO_TEXT = 0.1
"""Maximum share of the rows of a column of bytes that are no text, if the others are read as text."""
DECODED = 16
"""Number of rows of Parquet that are decoded at once; more are hardly faster, and each may repeat a long text."""

Record = dict[str, Any]


def is_dataset(path: Path) -> bool:
    """Return whether a path is a directory of `datasets`."""
    return (path / STATE).is_file() or (path / SPLITS).is_file()


def fingerprint_source(path: str | Path) -> str | None:
    """Return a fingerprint of the content of a file or directory, and of the part of it that is read.

    Returns:
        None for what can be read only once, such as standard input.
    """
    if isinstance(path, Section):
        with on_disk(path) as copy:
            digest = fingerprint_bytes(Path(copy), path.start, path.stop)
        return fingerprint_values([digest, path.start, path.before])
    file, part = split_part(path)
    if address_of(path):
        with on_disk(path) as copy:
            return fingerprint_path(copy)
    content = None if str(path) == "-" else fingerprint_path(file)
    return fingerprint_values([content, part]) if part else content


def read_arrow(path: str | Path) -> Iterator[tuple[int, Record]]:
    """Read the rows of a file, of a section of Parquet, or of a directory of `datasets`.

    Yields:
        The number of the row, from 1, and its values by column.

    Raises:
        UserError: a file cannot be read, is damaged, or expands too much; pyarrow is missing; the number of a class has
            no name.
    """
    pyarrow = import_pyarrow(path)
    section = path if isinstance(path, Section) else None
    number = section.before if section else 0
    left_out: set[str] = set()
    for file in _files(Path(path)):
        read, most = 0.0, max(FREE, MAX_RATIO * _size(file))
        for batch, names in _batches(file, pyarrow, most, section, left_out):
            sizes = sizes_of_rows(batch)
            read += float(sizes.sum())
            if read > most:
                raise expands_too_much(file)
            for start, stop in split_rows(sizes, BATCH, MAX_DOCUMENT):
                if sizes[start] > MAX_DOCUMENT:
                    _check_lengths(batch.slice(start, 1), path, number + 1)
                for record in batch.slice(start, stop - start).to_pylist():
                    number += 1
                    yield number, name_classes(record, names, str(path), number)


def _check_lengths(row: Any, path: str | Path, number: int) -> None:
    """Raise an error if a text of a row is too long, or a list of texts with what is in it."""
    for name, column in zip(row.schema.names, row.columns, strict=True):
        if sizes_of_values(column)[0] > MAX_DOCUMENT:
            raise UserError(f"a text is {TOO_LONG} ('{name}')", file=path, line=number)


def class_names(features: object) -> dict[str, tuple[str, ...]]:
    """Return the names of the classes in each column that has them, given the features of `datasets` as a table."""
    classes = {name: _names(feature) for name, feature in features.items()} if isinstance(features, Mapping) else {}
    return {name: names for name, names in classes.items() if names}


def name_classes(record: Record, names: Mapping[str, tuple[str, ...]], file: str, line: int) -> Record:
    """Return a record with classes by their names; -1, which marks a missing label, becomes None.

    Raises:
        UserError: the number of a class has no name.
    """

    def name(column: str, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [name(column, item) for item in value]
        if not isinstance(value, int) or value == -1:
            return None if value == -1 else value
        if not 0 <= value < len(names[column]):
            raise UserError(
                f"'{column}' is {value}, but its {len(names[column])} classes are numbered from 0",
                file=file,
                line=line,
                remedy="give whole words, each with its class, and no pieces of words" if value == IGNORED else "",
            )
        return names[column][value]

    return record | {column: name(column, record[column]) for column in names if column in record}


def _names(feature: Any) -> tuple[str, ...]:
    """Return the names of a ClassLabel, or of the ClassLabels in a list."""
    if isinstance(feature, list):
        feature = {"feature": feature[0]} if len(feature) == 1 else {}
    if not isinstance(feature, Mapping):
        return ()
    if "feature" in feature:
        return _names(feature["feature"])
    names = feature.get("names") if feature.get("_type") == "ClassLabel" else None
    return tuple(map(str, names)) if isinstance(names, list) else ()


def _files(path: Path) -> Iterator[Path]:
    """Yield the files of a directory of `datasets`; a file stands for itself."""
    if not path.is_dir():
        yield path
        return
    if not (path / STATE).is_file():
        splits = _json(path / SPLITS).get("splits")
        known = ", ".join(str(path / str(name)) for name in splits) if isinstance(splits, list) else "its directories"
        raise UserError("this directory holds several splits", file=path, remedy=f"name one: {known}")
    state = _json(path / STATE)
    if state.get("_indices_data_files"):
        problem = "its rows are chosen by indices, which older versions of datasets saved, and which are not read"
        raise UserError(problem, file=path, remedy="save it again after flatten_indices()")
    files = state.get("_data_files")
    names = [file.get("filename") for file in files if isinstance(file, dict)] if isinstance(files, list) else []
    for name in names or [None]:
        if not isinstance(name, str) or Path(name).name != name:
            raise UserError("does not name the files of the data set", file=path / STATE, remedy="save it again")
        yield path / name


def _json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(read_whole(path), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise UserError(f"cannot be read ({error})", file=path) from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error


def row_groups(path: Path) -> list[tuple[int, int]]:
    """Return where each row group of a Parquet file begins, and how many rows it has; none if they are in disorder.

    Raises:
        UserError: the file cannot be read.
    """
    pyarrow = import_pyarrow(path)
    from pyarrow import parquet

    with _naming(path, pyarrow):
        metadata = parquet.read_metadata(path)
        groups = [
            (_start(group), int(group.num_rows)) for group in map(metadata.row_group, range(metadata.num_row_groups))
        ]
    starts = [start for start, _ in groups]
    return groups if starts == sorted(set(starts)) else []


def _start(group: Any) -> int:
    """Return the first byte of a row group in its file; 0: it is not known."""
    columns = [group.column(number) for number in range(group.num_columns)]
    places = [(column.dictionary_page_offset, column.data_page_offset) for column in columns]
    return int(min((place for each in places for place in each if place), default=0))


def _batches(
    file: Path, pyarrow: ModuleType, most: int, section: Section | None, left_out: set[str]
) -> Iterator[tuple[Any, Mapping[str, tuple[str, ...]]]]:
    """Yield the batches of a file, validated, without unusable columns, with the names of the classes in them.

    Columns of bytes that are no text are left out from there on, and added to `left_out`.
    """
    with _naming(file, pyarrow):
        if file.suffix.lower() == ".parquet":
            from pyarrow import parquet

            opened = parquet.ParquetFile(file)
            groups = [opened.metadata.row_group(number) for number in range(opened.num_row_groups)]
            if sum(group.total_byte_size for group in groups) > most:
                raise expands_too_much(file)
            schema = opened.schema_arrow
            columns = _usable(schema, pyarrow)
            chosen = [
                number
                for number, group in enumerate(groups)
                if section is None or section.start <= _start(group) < section.stop
            ]
            batches = _joined(opened.iter_batches(DECODED, row_groups=chosen, columns=columns), pyarrow)
        else:
            from pyarrow import ipc

            source = pyarrow.OSFile(str(file))
            in_blocks = source.read(6) == b"ARROW1"
            source.seek(0)
            stream = ipc.open_file(source) if in_blocks else ipc.open_stream(source)
            try:
                expanded = decompressed_size(file, in_blocks=in_blocks)
            except ValueError as error:
                raise DamagedError(str(error)) from error
            if expanded > most:
                raise expands_too_much(file)
            schema, columns = stream.schema, _usable(stream.schema, pyarrow)
            batches = map(stream.get_batch, range(stream.num_record_batches)) if in_blocks else stream
        about = msgspec.json.decode((schema.metadata or {}).get(METADATA, b"{}"), type=dict[str, Any])
        names = class_names(about.get("info", {}).get("features") if isinstance(about.get("info"), dict) else None)
        for batch in batches:
            usable = batch.select(columns)
            usable.validate(full=True)
            for index, name in reversed([*enumerate(usable.schema.names)]):
                column = usable.column(index)
                converted = None if name in left_out else _converted(column, pyarrow)
                if converted is None:
                    left_out.add(name)
                    usable = usable.remove_column(index)
                elif converted is not column:
                    usable = usable.set_column(index, name, converted)
            yield usable, names


def _converted(column: Any, pyarrow: ModuleType) -> Any:
    """Return a column as one of texts, numbers or lists; None if it has bytes many of which are no text.

    Bytes are how several programs write texts, which then are not declared as such. A few that are no text are missing.
    """
    from pyarrow import compute, types

    kind = column.type
    if types.is_fixed_size_list(kind):
        return compute.cast(column, pyarrow.list_(kind.value_type))
    if _is_bytes(kind):
        try:
            texts = compute.cast(column, pyarrow.large_string())
        except pyarrow.ArrowInvalid:
            return _texts_of(column, pyarrow)
        return _texts_of(column, pyarrow) if compute.any(compute.match_substring(texts, "\0")).as_py() else texts
    return _as_text(column) if _becomes_text(kind) else column


def _texts_of(column: Any, pyarrow: ModuleType) -> Any:
    """Return a column of bytes, some of which are no text, as texts, without these; None if these are many."""
    texts = [None if value is None else _decoded(value) for value in column.to_pylist()]
    no_text = texts.count(None) - column.null_count
    return None if no_text > MAX_NO_TEXT * len(texts) else pyarrow.array(texts, pyarrow.large_string())


def _decoded(value: bytes) -> str | None:
    """Return the text that bytes are; None if they are none."""
    try:
        return None if b"\0" in value else value.decode()
    except UnicodeDecodeError:
        return None


def _is_bytes(kind: Any) -> bool:
    from pyarrow import types

    return any(check(kind) for check in (types.is_binary, types.is_large_binary, types.is_binary_view))


def _becomes_text(kind: Any) -> bool:
    """Return whether values of a type are read as text: dates, times and decimal numbers."""
    from pyarrow import types

    return any(check(kind) for check in (types.is_decimal, types.is_date, types.is_time, types.is_timestamp))


def _as_text(column: Any) -> Any:
    """Return the values of such a column as text, times with a zone in UTC."""
    from pyarrow import compute, string, timestamp, types

    kind = column.type
    if types.is_decimal(kind):
        return compute.cast(column, string())
    zone = "Z" if types.is_timestamp(kind) and kind.tz else ""
    text = compute.cast(compute.cast(column, timestamp(kind.unit)) if zone else column, string())
    return compute.binary_join_element_wise(compute.replace_substring_regex(text, r"\.0+$", ""), zone, "")


def _joined(batches: Iterator[Any], pyarrow: ModuleType) -> Iterator[Any]:
    """Yield batches of up to about `BATCH` rows and `FREE` bytes, made of small ones: each costs time."""
    waiting: list[Any] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= BATCH or size >= FREE:
            yield from pyarrow.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, rows, size = [], 0, 0
    if waiting:
        yield from pyarrow.Table.from_batches(waiting).combine_chunks().to_batches()


@contextmanager
def _naming(file: Path, pyarrow: ModuleType) -> Iterator[None]:
    try:
        yield
    except (pyarrow.ArrowException, OSError, DamagedError, msgspec.DecodeError, UnicodeDecodeError) as error:
        message = " ".join(str(error).split())[:200]
        raise UserError(f"cannot be read as {file.suffix[1:]} ({message})", file=file) from error


def _usable(schema: Any, pyarrow: ModuleType) -> list[str]:
    """Return the columns of texts, numbers, truth values, lists and structures of them, dates and times, and bytes."""
    types = pyarrow.types

    def usable(kind: Any) -> bool:
        if types.is_struct(kind):  # probabilities of labels, answers with their offsets
            return all(usable(field.type) for field in kind)
        if types.is_list(kind) or types.is_large_list(kind) or types.is_dictionary(kind):
            return usable(kind.value_type)
        return any(
            check(kind)
            for check in (
                *(types.is_string, types.is_large_string, types.is_string_view),
                *(types.is_integer, types.is_floating, types.is_boolean, types.is_null),
            )
        )

    def readable(kind: Any) -> bool:
        sized = types.is_fixed_size_list(kind) and usable(kind.value_type)
        return sized or usable(kind) or _becomes_text(kind) or _is_bytes(kind)

    return [field.name for field in schema if readable(field.type)]


Reader = Callable[[str | Path], Iterator[tuple[int, Record]]]
"""Yields the number of each record, from 1, and its values by column; raises a `UserError` that names file and line."""

_SQLITE = "unmask.data.text.sqlite_file:read_sqlite"
READERS: Registry[Reader] = Registry(
    "unmask.readers",
    dict.fromkeys(("parquet", "arrow", "feather"), read_arrow)
    | dict.fromkeys(("sqlite", "sqlite3", "db"), _SQLITE)
    | {"xlsx": "unmask.data.text.spreadsheet:read_xlsx", "ods": "unmask.data.text.spreadsheet:read_ods"},
    "collections.abc:Callable",
)
"""Reader by suffix, in lower case and without the dot."""


def has_reader(path: str | Path) -> bool:
    """Return whether a path is read by `read_file`, by its suffix or as a directory of `datasets`."""
    return _suffix(path) in READERS or is_dataset(Path(path))


def read_file(path: str | Path) -> Iterator[tuple[int, Record]]:
    """Read the records of a file, or of a directory of `datasets`; see `Reader`.

    Raises:
        UserError: it cannot be read, is damaged, or an encoding is part of its path.
    """
    refuse_encoding(path)
    read = READERS.get(_suffix(path), read_arrow)
    with on_disk(path) as file:
        yield from read(path.of(file) if isinstance(path, Section) else file)


def _suffix(path: str | Path) -> str:
    return split_part(path)[0].suffix.lower().removeprefix(".")
