"""Reading of JSON files with the location of every value, so that errors can name it.

Input: a JSON file, optionally compressed. Output: its content; `Place` checks and returns the values inside.

Records of labeled examples by column name, from JSON Lines or JSON arrays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from unmask.data.text.files import (
    COMPRESSED,
    decode_line,
    decode_text,
    display_name,
    read_text_lines,
    read_text_start,
    read_text_whole,
)
from unmask.data.text.json_keys import check_keys
from unmask.support.errors import UserError

JSON = ("jsonl", "json", "ndjson")
"""Suffixes of files of records."""
TABLES = ("data", "rows", "records", "examples")
"""Keys under which a single object has a list of examples."""
LONGEST_LINE = 1 << 20
"""Bytes in which the first of several lines must end, to be recognized as one."""


RECORDS = (
    "write an object for each example on a line of its own, as pandas does by to_json(orient='records', lines=True), "
    "or one array of objects"
)
"""The remedy where a file of JSON is none of records."""


def suffix_of(path: str | Path) -> str:
    """Return the suffix that determines a file's format, in lower case, without the dot and that of compression."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    return next((suffix[1:] for suffix in reversed(suffixes) if suffix not in COMPRESSED), "")


def read_json(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file of JSON Lines, or of a JSON array, with the number of each line or object.

    Raises:
        UserError: the file cannot be read, or has something else; the message names line or object.
    """
    name = display_name(path)
    if is_array(path):
        content = {"records": decode_json(path, Place(name, form="JSON"))}
        for number, (_, record) in enumerate(Place(name, form="JSON").each(content, "records", "row"), 1):
            yield number, record
        return
    first = True
    for number, line in read_text_lines(path):
        if line.strip():
            if line.strip() == "{":
                raise UserError("an object has several lines", file=name, line=number, remedy=RECORDS)
            record = decode_line(line, name, number)
            if first and is_whole(record):
                keys = ", ".join(map(repr, record))
                raise UserError(
                    f"the object is a table, not an example; keys: {keys[:200]}", file=name, line=number, remedy=RECORDS
                )
            first = False
            yield number, record


def is_whole(record: Mapping[str, Any]) -> bool:
    """Return whether an object is a whole table, as pandas writes it by default or by `orient="split"`."""
    if any(is_table_of(record.get(key)) for key in TABLES):
        return True
    return len(record) > 1 and all(isinstance(value, dict) for value in record.values())


def is_table_of(value: Any) -> bool:
    """Return whether a value is a list of objects or of rows."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], list | dict)


def is_array(path: str | Path) -> bool:
    """Return whether a file, whose name ends in .json, is one JSON array rather than a JSON object in each line."""
    if str(path) == "-" or suffix_of(path) != "json":
        return False
    return read_text_start(path, 1024)[:1] == b"["


def is_lines(path: str | Path) -> bool:
    """Return whether the first line of a file is a whole JSON object, and another line follows it."""
    first, _, rest = read_text_start(path, LONGEST_LINE).partition(b"\n")
    try:
        return bool(rest.strip()) and isinstance(msgspec.json.decode(first), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


@dataclass(frozen=True)
class Place:
    """The location of a part of a file, for messages.

    Attributes:
        file: the file.
        path: the part, for example "article 1, paragraph 2"; empty for the whole file.
        form: name of the format that the file should have.
    """

    file: str
    path: str = ""
    form: str = "SQuAD"

    @property
    def remedy(self) -> str:
        """The remedy if the file has another format."""
        return f"files must be in {self.form} format"

    def inner(self, name: str) -> Place:
        """Return the location of a part of this one."""
        return replace(self, path=f"{self.path}, {name}" if self.path else name)

    def named(self, name: str) -> Place:
        """Return this location with a name in brackets, such as the id of the record there."""
        return replace(self, path=f"{self.path} ({name})")

    def refuse(self, message: str, remedy: str = "") -> NoReturn:
        """Raise an error about this location."""
        raise UserError(f"{self.path}: {message}" if self.path else message, file=self.file, remedy=remedy)

    def take(self, record: dict[str, Any], key: str, kind: type) -> Any:
        """Return the value of a required key, which must be of this type."""
        if key not in record:
            self.refuse(f"'{key}' is missing", self.remedy)
        value = record[key]
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
            self.refuse(f"'{key}' is {type(value).__name__}, not {kind.__name__}")
        return value

    def each(self, record: dict[str, Any], key: str, name: str) -> Iterator[tuple[Place, dict[str, Any]]]:
        """Yield the objects of a list, each with its location."""
        for number, value in enumerate(self.take(record, key, list), start=1):
            place = self.inner(f"{name} {number}")
            if not isinstance(value, dict):
                place.refuse(f"{type(value).__name__}, not an object")
            yield place, value

    def text(self, record: dict[str, Any], key: str) -> str:
        """Return the text of a required key, which must not be empty."""
        value: str = self.take(record, key, str)
        if not value.strip():
            self.refuse(f"the {key} is empty", "fix or remove it")
        return value


def claim(seen: dict[str, str], name: str, place: Place) -> None:
    """Note that an id belongs to a location.

    Raises:
        UserError: it is also that of another one.
    """
    if name in seen:
        place.refuse(f"the id '{name}' is also that of {seen[name]}", "ids must be unique")
    seen[name] = place.path


def decode_json(path: str | Path, top: Place) -> Any:
    """Return the content of a JSON file.

    Args:
        path: a file, optionally `.gz`, `.xz` or `.zst`; `-` is standard input.
        top: its location.

    Raises:
        UserError: it is too large, broken or not UTF-8 (names the line), or has a key twice.
    """
    raw = read_text_whole(path).removeprefix(b"\xef\xbb\xbf")
    try:
        content = msgspec.json.decode(raw)
        check_keys(raw, content)
    except UnicodeDecodeError:
        decode_text(raw, top.file)  # names the line
        raise
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        byte = re.search(r"byte (\d+)", str(error))
        line = raw[: int(byte[1])].count(b"\n") + 1 if byte else None
        remedy = f"a file in {top.form} format is a single JSON value"
        raise UserError(f"broken JSON ({error})", file=top.file, line=line, remedy=remedy) from error
    return content


def decode_object(path: str | Path, top: Place, key: str) -> dict[str, Any]:
    """Return the content of a JSON file that is an object with a key.

    Raises:
        UserError: see `decode_json`; or it is no object.
    """
    content = decode_json(path, top)
    if not isinstance(content, dict):
        top.refuse(f"{type(content).__name__}, not an object with '{key}'", top.remedy)
    return content
