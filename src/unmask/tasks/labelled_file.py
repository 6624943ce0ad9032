"""Labelled files: rows of named or numbered columns, from TSV, CSV or JSON Lines, also compressed.

In: files and, where columns have other names or there is no header, `--columns text=NAME_OR_NUMBER,label=…`.
Out: rows with their place, so that an error can name file and line. A bad row ends the reading: nothing is silently
dropped.

TSV has no quoting; CSV follows RFC 4180; a byte-order mark is dropped.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from unmask.errors import UserError, nearest
from unmask.text.files import display_name, open_bytes

PAIRS = (
    *(("text", "text_b"), ("text_a", "text_b"), ("sentence1", "sentence2"), ("sentence_A", "sentence_B")),
    *(("premise", "hypothesis"), ("question1", "question2"), ("#1 String", "#2 String"), ("question", "sentence")),
)
"""Names under which the texts of a pair are found unless `--columns` says otherwise;"""
TEXTS = ("text", "sentence", "review", "content", "text_a")
"""and, where a file has no pairs, a single text;"""
LABELS = ("label", "labels", "gold_label", "class", "sentiment", "Quality", "is_duplicate", "entailment_judgment")
"""and a label."""
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
) -> list[Row]:
    """Read all rows of some files: single texts, or all of them pairs.

    Args:
        paths: `.tsv`, `.csv`, `.jsonl` or `.json`, each also `.gz` or `.xz`; `-` is standard input and needs `kind`.
        columns: our names to theirs, or to numbers from 0, which say that there is no header.
        kind: the format, where the suffix does not tell.
        gold: whether labels are wanted.
        labels: names of their column unless `columns` says otherwise.

    Raises:
        UserError: a missing column, a bad row, no rows; names file and line.
    """
    if columns.keys() - {"text", "text_b", *(("label",) if gold else ())}:
        raise UserError("--columns label=… has no effect: no labels are read")
    wanted = _Wanted(columns, tuple(labels) if gold else ())
    rows: list[Row] = []
    for path in paths:
        name = display_name(path)
        found = _format(path, kind)
        with open_bytes(path) as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="" if found == "csv" else "\n")
            try:
                rows += list(_read(text, found, wanted, name))
            except UnicodeDecodeError as error:
                raise UserError(f"not UTF-8 ({error.reason} near line {_bad_line(path)})", file=name) from error
            finally:
                text.detach()
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


def read_texts(path: str | Path, *, columns: Mapping[str, str]) -> list[str]:
    """Read texts from a plain file, one a line; empty lines are left out.

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
    texts = [text for line in lines if (text := line.strip())]
    if not texts:
        raise UserError("no texts are in the file", file=display_name(path))
    return texts


def _format(path: str | Path, kind: str | None) -> str:
    suffixes = [suffix.lower().removeprefix(".") for suffix in Path(path).suffixes]
    suffixes = [suffix for suffix in suffixes if suffix not in ("gz", "xz")]
    found = kind or (suffixes[-1] if suffixes else "")
    found = {"json": "jsonl", "ndjson": "jsonl"}.get(found, found)
    if found not in FORMATS:
        raise UserError(
            "the format of labelled examples goes by the file's suffix",
            file=display_name(path),
            remedy="call it .tsv, .csv or .jsonl, or pass --format",
        )
    return found


@dataclass(frozen=True)
class _Wanted:
    """Which columns to take.

    Attributes:
        columns: our names to theirs, as the user gave them.
        labels: names of the label's column; none where no label is wanted.
    """

    columns: Mapping[str, str]
    labels: tuple[str, ...]

    def numbered(self, name: str) -> dict[str, int]:
        """Return the columns' places where they are given as numbers, which say that there is no header."""
        numbers = {ours: int(theirs) for ours, theirs in self.columns.items() if theirs.isdecimal()}
        needed = {"text", *self.columns, *(("label",) if self.labels else ())}
        if numbers and (named := sorted(needed - numbers.keys())):
            raise UserError(f"--columns gives numbers, but none for {', '.join(named)}", file=name)
        return numbers

    def named(self, cells: Sequence[str], name: str, line: int) -> dict[str, int]:
        """Find the columns among the names of a header."""
        names = [cell.strip() for cell in cells]
        chosen: dict[str, tuple[str, ...]] = {ours: (theirs,) for ours, theirs in self.columns.items()}
        if "text" not in chosen:
            pair = next((pair for pair in PAIRS if set(pair) <= set(names)), None)
            if pair and "text_b" not in chosen:
                chosen |= {"text": (pair[0],), "text_b": (pair[1],)}
            else:
                chosen["text"] = (*TEXTS, *(first for first, _ in PAIRS))
        if self.labels:
            chosen.setdefault("label", self.labels)
        places = {}
        for ours, candidates in chosen.items():
            found = next((theirs for theirs in candidates if theirs in names), None)
            if found is None:
                raise UserError(
                    f"no column called {' or '.join(dict.fromkeys(candidates))}; there are: {', '.join(names)[:200]}",
                    file=name,
                    line=line,
                    remedy=f"pass --columns {ours}=NAME, or numbers from 0 if there is no header",
                )
            places[ours] = names.index(found)
        return places


def _read(text: io.TextIOBase, kind: str, wanted: _Wanted, name: str) -> Iterator[Row]:
    if kind == "jsonl":
        yield from _read_jsonl(text, wanted, name)
        return
    lines = _split_csv(text, name) if kind == "csv" else _split_tsv(text)
    places = wanted.numbered(name)
    has_header = not places
    width = None
    for line, cells in lines:
        if cells in ([], [""]):
            continue
        if width is None:
            width = len(cells)
            if has_header:
                places = wanted.named(cells, name, line)
                continue
        if len(cells) != width:
            raise UserError(
                f"{len(cells)} columns where there should be {width}",
                file=name,
                line=line,
                remedy="a tab inside a text? TSV has no quoting" if kind == "tsv" else "quote texts with commas",
            )
        if max(places.values()) >= width:
            raise UserError(f"there is no column {max(places.values())}, counted from 0", file=name, line=line)
        yield _row({ours: cells[place] for ours, place in places.items()}, name, line)


def _split_tsv(text: io.TextIOBase) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text, start=1):
        yield number, line.rstrip("\r\n").split("\t")


def _split_csv(text: io.TextIOBase, name: str) -> Iterator[tuple[int, list[str]]]:
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


def _read_jsonl(text: io.TextIOBase, wanted: _Wanted, name: str) -> Iterator[Row]:
    for number, line in enumerate(text, start=1):
        if not line.strip():
            continue
        try:
            record = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UserError(f"broken JSON ({error})", file=name, line=number) from error
        if not isinstance(record, dict):
            raise UserError("not a JSON object", file=name, line=number)
        keys = wanted.named(list(record), name, number)
        values = list(record.values())
        found = {ours: values[place] for ours, place in keys.items()}
        for ours, value in found.items():
            if not isinstance(value, str | int | float) or (ours != "label" and not isinstance(value, str)):
                raise UserError(f"'{ours}' is {type(value).__name__}, not text", file=name, line=number)
        yield _row({ours: str(value) for ours, value in found.items()}, name, number)


def _row(values: Mapping[str, str], name: str, line: int) -> Row:
    values = {ours: value.strip() for ours, value in values.items()}
    for ours, value in values.items():
        if not value:
            raise UserError(f"the {ours} is empty", file=name, line=line, remedy="mend or remove the row")
    return Row(values, name, line)


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
