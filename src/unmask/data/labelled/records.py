"""Records of labeled examples by column name, from JSON Lines, JSON arrays, Parquet, Arrow, or memory.

Input: a file or a `Table`. Output: numbered records; the number is that of the line or, where rows are not lines, of
the row, from 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from unmask.data.labelled.json_file import Place, decode_json
from unmask.data.labelled.table import Source, Table
from unmask.data.text.arrow_file import Record, is_arrow, read_arrow
from unmask.data.text.files import COMPRESSED, decode_object, display_name, open_bytes, read_text_lines

JSON = ("jsonl", "json", "ndjson")
"""Suffixes of files of records."""


def suffix_of(path: str | Path) -> str:
    """Return the suffix that determines a file's format, in lower case, without the dot and that of compression."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    return next((suffix[1:] for suffix in reversed(suffixes) if suffix not in COMPRESSED), "")


def has_records(source: Source, kind: str | None) -> bool:
    """Return whether a source is read by `read_records`, by its suffix or the given format."""
    if isinstance(source, Table):
        return True
    return kind in JSON or (kind is None and (suffix_of(source) in JSON or is_arrow(source)))


def read_records(source: Source, kind: str | None = None) -> Iterator[tuple[int, Record]]:
    """Yield the number of each line or row, and its values by column.

    Args:
        source: a file, a directory of `datasets`, or examples in memory.
        kind: "jsonl" if the suffix does not determine the format.

    Raises:
        UserError: the source cannot be read; the message names line or row.
    """
    if isinstance(source, Table):
        yield from source.records()
    elif kind is None and is_arrow(source):
        yield from read_arrow(source)
    elif _is_array(source):
        name = display_name(source)
        content = {"records": decode_json(source, Place(name, form="JSON"))}
        for number, (_, record) in enumerate(Place(name, form="JSON").each(content, "records", "row"), 1):
            yield number, record
    else:
        for number, line in read_text_lines(source):
            if line.strip():
                yield number, decode_object(line, display_name(source), number)


def _is_array(path: str | Path) -> bool:
    """Return whether a file, whose name ends in .json, is one JSON array rather than a JSON object in each line."""
    if str(path) == "-" or suffix_of(path) != "json":
        return False
    with open_bytes(path) as stream:
        start = stream.read(1024).removeprefix(b"\xef\xbb\xbf").lstrip()
    return start[:1] == b"["
