"""Labelled files: rows of named or numbered columns, from TSV, CSV or JSON Lines, also compressed.

In: files and, where columns have other names or there is no header, `--columns text=NAME_OR_NUMBER,label=…`.
Out: rows with their place, so that an error can name file and line. A bad row ends the reading: nothing is dropped but
what a published format says has no label, and that is counted.

TSV has no quoting; CSV follows RFC 4180; a byte-order mark is dropped.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from unmask.errors import UserError, nearest
from unmask.labelled.columns import ACCEPTABILITY, LABELS, Found, Headerless, Wanted
from unmask.text.files import MAX_DOCUMENT, decode_object, display_name, open_bytes

NAMES = ("text", "text_b", "label")
"""What a row consists of."""

FORMATS = ("tsv", "csv", "jsonl")


@dataclass(frozen=True)
class Row:
    """One example as it stands in a file.

    Attributes:
        values: the columns asked for, by our names ("text", "label"; of pairs also "text_b").
        file, line: where it stands.
    """

    values: Mapping[str, str]
    file: str
    line: int


def parse_columns(text: str | None) -> dict[str, str]:
    """Read `text=NAME_OR_NUMBER,label=…`.

    Raises:
        UserError: not of that form, or an unknown name on the left.
    """
    columns = {}
    for part in text.split(",") if text else ():
        ours, equals, theirs = part.partition("=")
        if not equals or not theirs:
            raise UserError(f"--columns {text}: '{part}' is not NAME=COLUMN", remedy="for example text=3,label=1")
        if ours not in NAMES:
            raise UserError(f"--columns {text}: unknown '{ours}'", remedy=nearest(ours, NAMES))
        columns[ours] = theirs
    return columns


def read_rows(
    paths: Sequence[str | Path],
    *,
    columns: Mapping[str, str],
    kind: str | None = None,
    gold: bool = True,
    labels: Sequence[str] = LABELS,
    headerless: Headerless = ACCEPTABILITY,
    notes: list[str] | None = None,
) -> list[Row]:
    """Read all rows of some files: single texts, or all of them pairs.

    Args:
        paths: `.tsv` or `.txt`, `.csv`, `.jsonl` or `.json`, each also `.gz` or `.xz`; `-` is standard input and needs
            `kind`.
        columns: our names to theirs, or to numbers from 0, which say that there is no header.
        kind: the format, where the suffix does not tell.
        gold: whether labels are wanted.
        labels: names of their column unless `columns` says otherwise.
        headerless: the published format that needs no header.
        notes: gets a line for each file of which rows were left out, as its format says.

    Raises:
        UserError: a missing column, a bad row, no rows; names file and line.
    """
    if columns.keys() - {"text", "text_b", *(("label",) if gold else ())}:
        raise UserError("--columns label=… has no effect: no labels are read")
    wanted = Wanted(columns, tuple(labels) if gold else (), headerless)
    rows: list[Row] = []
    for path in paths:
        name, left = display_name(path), Counter[str]()
        found = _format(path, kind)
        with open_bytes(path) as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="" if found == "csv" else "\n")
            try:
                rows += list(_read(text, found, wanted, name, left))
            except UnicodeDecodeError as error:
                raise UserError(f"not UTF-8 ({error.reason} near line {_bad_line(path)})", file=name) from error
            finally:
                text.detach()
        if notes is not None:
            notes += [f"{name}: left out, as the format says: {count:,} {what}" for what, count in left.items()]
    if not rows:
        raise UserError("no examples are in the file", file=", ".join(map(display_name, paths)))
    first = rows[0]
    if mixed := next((row for row in rows if row.values.keys() != first.values.keys()), None):
        raise UserError(
            f"pairs and single texts are mixed: {first.file}:{first.line} is not of this kind",
            file=mixed.file,
            line=mixed.line,
            remedy="pass --columns text=…,text_b=…",
        )
    return rows


def is_plain(path: str | Path, kind: str | None) -> bool:
    """Say whether `read_texts` reads a file: a text a line, by its suffix or the format that was given."""
    return (kind or _suffix(path)) == "txt"


def read_texts(path: str | Path, *, columns: Mapping[str, str], notes: list[str]) -> list[str]:
    """Read texts from a plain file, one a line; empty lines are left out and counted in `notes`.

    Raises:
        UserError: no text, or not UTF-8.
    """
    if columns:
        raise UserError("--columns has no effect on a text file: each line is a text", file=display_name(path))
    with open_bytes(path) as stream:
        try:
            lines = stream.read().decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise UserError(f"not UTF-8 ({error.reason})", file=display_name(path)) from error
    lines = lines[:-1] if not lines[-1] else lines
    texts = [text for line in lines if (text := line.strip())]
    if not texts:
        raise UserError("no texts are in the file", file=display_name(path))
    if left := len(lines) - len(texts):
        notes.append(f"{display_name(path)}: left out: {left:,} empty lines")
    return texts


def _suffix(path: str | Path) -> str:
    """Return what tells a file's format, in small letters and without a dot; that of compression does not."""
    suffixes = [suffix.lower().removeprefix(".") for suffix in Path(path).suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in ("gz", "xz")), "")


def _format(path: str | Path, kind: str | None) -> str:
    found = kind or _suffix(path)
    found = {"json": "jsonl", "ndjson": "jsonl", "txt": "tsv"}.get(found, found)
    if found not in FORMATS:
        if kind:
            raise UserError(
                f"--format {kind} has no columns of texts", file=display_name(path), remedy="tsv, csv or jsonl"
            )
        raise UserError(
            "the format of labelled examples goes by the file's suffix",
            file=display_name(path),
            remedy="call it .tsv, .csv or .jsonl, or pass --format",
        )
    return found


def _read(text: io.TextIOBase, kind: str, wanted: Wanted, name: str, left: Counter[str]) -> Iterator[Row]:
    """Yield the rows of a file; count in `left` what the format itself leaves out."""
    if kind == "jsonl":
        yield from _read_jsonl(text, wanted, name, left)
        return
    lines = _split_csv(text, name) if kind == "csv" else _split_tsv(text)
    rows = ((line, cells) for line, cells in lines if cells not in ([], [""]))
    first = next(rows, None)
    if first is None:
        return
    width = len(first[1])
    found, rest = _find(first, rows, kind, wanted, name)
    if max(found.places.values()) >= width:
        raise UserError(f"there is no column {max(found.places.values())}, counted from 0", file=name, line=first[0])
    for line, cells in rest:
        if len(cells) < width and found.damaged:
            left["pieces of rows torn by a line break in a question"] += 1
            continue
        if len(cells) != width:
            raise UserError(
                f"{len(cells)} columns where there should be {width}",
                file=name,
                line=line,
                remedy="a tab inside a text? TSV has no quoting" if kind == "tsv" else "quote texts with commas",
            )
        yield from _row({ours: cells[place] for ours, place in found.places.items()}, name, line, found, left)


_Line = tuple[int, list[str]]
"""A row's line and its cells."""


def _find(first: _Line, rows: Iterator[_Line], kind: str, wanted: Wanted, name: str) -> tuple[Found, Iterable[_Line]]:
    """Return where to look, and the rows, which the first line is one of where it is no header."""
    if found := wanted.numbered(name):
        return found, chain([first], rows)
    try:
        return wanted.named(first[1], name, first[0]), rows
    except UserError:
        if kind != "tsv" or not wanted.may_lack_header(first[1]):
            raise
    held = [first, *rows]
    return wanted.unnamed(held, name), held


def _split_tsv(text: io.TextIOBase) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text, start=1):
        yield number, line.rstrip("\r\n").split("\t")


def _split_csv(text: io.TextIOBase, name: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(MAX_DOCUMENT)
    reader = csv.reader(text, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UserError(f"not valid CSV ({error})", file=name, line=line) from error
        if cells is None:
            return
        yield line, cells


def _read_jsonl(text: io.TextIOBase, wanted: Wanted, name: str, left: Counter[str]) -> Iterator[Row]:
    for number, line in enumerate(text, start=1):
        if not line.strip():
            continue
        record = decode_object(line, name, number)
        found = wanted.named(list(record), name, number)
        values = list(record.values())
        chosen = {ours: values[place] for ours, place in found.places.items()}
        for ours, value in chosen.items():
            if not isinstance(value, str | int | float) or (ours != "label" and not isinstance(value, str)):
                raise UserError(f"'{ours}' is {type(value).__name__}, not text", file=name, line=number)
        yield from _row({ours: str(value) for ours, value in chosen.items()}, name, number, found, left)


def _row(values: Mapping[str, str], name: str, line: int, found: Found, left: Counter[str]) -> Iterator[Row]:
    """Yield the row, unless its format says that it has no label."""
    values = {ours: value.strip() for ours, value in values.items()}
    if found.unlabelled is not None and values["label"] == found.unlabelled:
        left["pairs without a label"] += 1
        return
    for ours, value in values.items():
        if not value and ours != "label" and found.damaged:
            left["pairs with an empty question"] += 1
            return
        if not value:
            raise UserError(f"the {ours} is empty", file=name, line=line, remedy="mend or remove the row")
    yield Row(values, name, line)


def _bad_line(path: str | Path) -> str:
    if str(path) == "-":
        return "?"
    with open_bytes(path) as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return str(number)
    return "?"
