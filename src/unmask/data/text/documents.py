"""Splitting of raw files into documents.

Input: plain text or JSON Lines (`.jsonl`, `.ndjson`, `.json`), optionally compressed; Parquet, Arrow and directories of
`datasets`; web archives, HTML, dumps of wikis and books (pages.py); and the text options of the command line. Output:
the text of each document, with paragraphs separated by blank lines and no newlines inside a paragraph; and a record of
the documents that were skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from unmask.data.text.damage import DamagedTexts, find_damage
from unmask.data.text.encodings import check_encoding, refuse_encoding, suggest, with_encoding
from unmask.data.text.files import COMPRESSED, MAX_DOCUMENT, TOO_LONG, display_name, open_bytes, pages_of, read_lines
from unmask.data.text.json_keys import check_keys
from unmask.data.text.pages import as_paragraphs, read_pages
from unmask.data.text.record_files import has_reader, read_file
from unmask.data.text.sentences import PARAGRAPH_BREAK
from unmask.support.errors import EmptySource, UserError, counted, nearest, refuse_idle
from unmask.support.messages import argument

Line = tuple[int, bytes | None]
_Document = TypeVar("_Document")
_MODES = ("auto", "file", "blank-line", "line")
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_TABLE_SUFFIXES = (".tsv", ".csv")
SHOWN = 10
"""How many of many things messages list: skipped documents, kinds of records, fields of a line."""
_MARKUP = re.compile(
    rb"<[a-zA-Z][\w.:-]*(?:(?:\s+[\w.:-]+\s*=\s*(?:\"[^\"]*\"|'[^']*'))+\s*/?>|>(?:[^\S\n]*\n\s*)?<[a-zA-Z/])"
)
"""The start of a text in elements: one that has attributes, or in which another one begins."""
_INDENTED = re.compile(rb"[{\[]\s*\n\s*[\"{\[]")
"""The start of a JSON value of several lines."""
_DIVIDED = re.compile(r"\xad[^\S\n]*\n[^\S\n]*(?=\S)")
_EMPTY = "page without text"
_URLS = ("url", "metadata.url", "meta.url", "warc_headers.warc-target-uri")
"""Fields of records that have the address of a page: in C4 and FineWeb, by datatrove, in RedPajama, in OSCAR."""
_MISSING = object()


@dataclass(frozen=True)
class TextOptions:
    """Options for reading raw files.

    Args:
        field: the field of a JSON line that holds the text; `a.b` is field b of the object in field a.
        documents: what a document is in plain text: "file", "blank-line", "line", or "auto" (see `resolve_documents`).
        strict: raise an error at the first document that would be skipped.
        encoding: encoding of the files; None: UTF-8, or as a byte-order mark declares.

    Raises:
        UserError: the encoding is unknown.
    """

    field: str = "text"
    documents: str = "auto"
    strict: bool = False
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.encoding is not None:
            check_encoding(self.encoding)

    def changed(self) -> dict[str, str | bool]:
        """Return the options that are not the default ones, by their names."""
        return {name: value for name, value in asdict(self).items() if value != getattr(TextOptions, name)}


@dataclass
class Skipped:
    """The documents that could not be used, and those that are used as they are, but look damaged.

    Args:
        count: number of skipped documents.
        places: "file:line: reason" of the first ten.
        remedy: what to do about the first one; empty if that is obvious.
        damaged: those that look damaged.
        left_out: number of records of each kind that are no documents, such as images in a web archive.
    """

    count: int = 0
    places: list[str] = field(default_factory=list)
    remedy: str = ""
    damaged: DamagedTexts = field(default_factory=DamagedTexts)
    left_out: dict[str, int] = field(default_factory=dict)

    def add(self, place: str, remedy: str = "") -> None:
        """Record a skipped document."""
        self.remedy = self.remedy if self.count else remedy
        self.count += 1
        if len(self.places) < SHOWN:
            self.places.append(place)

    def merge(self, other: Skipped) -> None:
        """Add what was skipped of later files."""
        self.remedy = self.remedy if self.count else other.remedy
        self.count += other.count
        self.places = [*self.places, *other.places][:SHOWN]
        self.damaged.merge(other.damaged)
        for kind, count in other.left_out.items():
            self.left_out[kind] = self.left_out.get(kind, 0) + count

    def notes(self) -> list[str]:
        """Return what to say about what was left out, and about documents that look damaged."""
        notes = [f"to read the first skipped document: {self.remedy}"] if self.remedy else []
        notes += self.damaged.notes("document")
        if self.left_out:
            kinds = sorted(self.left_out.items(), key=lambda item: (-item[1], item[0]))
            more = f", and {len(kinds) - SHOWN} other kinds" if len(kinds) > SHOWN else ""
            listed = ", ".join(f"{kind}: {count:,}" for kind, count in kinds[:SHOWN])
            notes.append(f"records that are no text were left out ({listed}{more})")
        return notes


class SourceText(NamedTuple):
    """A document as it was read.

    Attributes:
        text: its text.
        url: the address of the page that it is from; "" if that is not known.
    """

    text: str
    url: str = ""


class _Fault(Exception):
    """Raised when a document must be skipped: the line, the reason, and the remedy."""

    def __init__(self, line: int, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason
        self.remedy = remedy


def resolve_documents(paths: Sequence[str | Path], options: TextOptions) -> str:
    """Return what a document is in these files.

    Args:
        paths: the files.
        options: how they are read.

    Returns:
        "file", "blank-line" or "line". "auto" resolves to "file" if there are several plain text files, to "blank-line"
        if there is a single one, and to "line" if all files have records.

    Raises:
        UserError: `options.documents` has an unknown value.
    """
    if options.documents not in _MODES:
        raise UserError(
            f"{argument('documents', options.documents)}: no such choice", remedy=nearest(options.documents, _MODES)
        )
    if options.documents != "auto":
        return options.documents
    texts = sum(_form(path) == "text" for path in paths)
    return "line" if texts == 0 else "blank-line" if texts == 1 else "file"


def refuse_idle_options(paths: Sequence[str | Path], options: TextOptions) -> None:
    """Check that each option has an effect on at least one of these files.

    Raises:
        UserError: an option has no effect.
    """
    forms = set(map(_form, paths))
    for path in paths:
        if has_reader(path) or pages_of(path) not in ("", "html"):
            refuse_encoding(with_encoding(path, options.encoding))
    if "records" not in forms:
        refuse_idle(": none of the files is JSON Lines", field=options.field != "text")
    if "text" not in forms and options.documents in ("file", "blank-line"):
        what = "in JSON Lines each line" if forms == {"records"} else "in such files each record"
        refuse_idle(f": {what} is a document", documents=options.documents)


def read_documents(paths: Sequence[str | Path], options: TextOptions, skipped: Skipped) -> Iterator[str]:
    r"""Read documents one at a time, holding at most one in memory.

    Args:
        paths: plain text or JSON Lines, optionally `.gz`, `.bz2`, `.xz` or `.zst`; Parquet, Arrow, or a directory of
            `datasets`; WARC, WET and ARC files, HTML, dumps of MediaWiki, or EPUB; `-` is plain text on standard input.
        options: how they are read.
        skipped: records the documents that are skipped: those that are not UTF-8, are longer than `MAX_DOCUMENT` bytes,
            are not a JSON object with a string in the text field, or are damaged records of an archive; and counts
            records that are no text, and pages without text. Other empty documents are dropped and not recorded.

    Yields:
        The text of each document: paragraphs separated by "\n\n", without other newlines and without NULs.

    Raises:
        UserError: a file cannot be read, or `strict` is set and a document would be skipped.
    """
    return (document.text for document in read_sources(paths, options, skipped))


def read_sources(
    paths: Sequence[str | Path], options: TextOptions, skipped: Skipped, *, lines: bool = False
) -> Iterator[SourceText]:
    """Read documents as `read_documents` does, each with its address where that is known.

    Known are the addresses of pages in web archives, and those in a field of records (`_URLS`). With `lines`, each line
    of a record is a paragraph, as it is in pages; by default lines are joined.
    """
    mode = resolve_documents(paths, options)
    for path in (with_encoding(path, options.encoding) for path in paths):
        is_table = has_reader(path)
        is_json = not is_table and _form(path) == "records"
        if form := "" if is_table else pages_of(path):
            yield from _read_pages(path, form, options, skipped)
            continue
        is_record = is_table or is_json
        parse = _parser(options.field, is_table=is_table, is_json=is_json)
        for unparsed in read_file(path) if is_table else _unparsed(path, mode, is_json=is_json):
            try:
                number, (text, url) = parse(unparsed)
            except _Fault as fault:
                _skip(fault, path, options, skipped)
                continue
            if damage := find_damage(text):
                number += 0 if is_record else text.count("\n", 0, damage.start())
                skipped.damaged.add(damage, f"{display_name(path)}:{number}")
            if document := _tidy(as_paragraphs(text) if lines and is_record else text):
                yield SourceText(document, url)


def refuse_none(documents: Iterator[_Document], skipped: Skipped, paths: Sequence[str | Path]) -> Iterator[_Document]:
    """Yield the documents unchanged.

    Raises:
        EmptySource: there were none, because all were skipped or because the files at `paths` are empty.
    """
    empty = True
    for document in documents:
        empty = False
        yield document
    if empty and skipped.count:
        raise EmptySource(f"every document was skipped, the first at {skipped.places[0]}", remedy=skipped.remedy)
    if empty and skipped.left_out:
        raise EmptySource(
            f"{display_name(paths[0])} has no text: {skipped.notes()[-1]}", remedy="give archives of pages (WARC, WET)"
        )
    if empty:
        others = f" and {counted(len(paths) - 1, 'other file')}" * (len(paths) > 1)
        raise EmptySource(
            f"there is no text in {display_name(paths[0])}{others}",
            remedy=f"check the files and {argument('documents')}",
        )


def _skip(fault: _Fault, path: str | Path, options: TextOptions, skipped: Skipped) -> None:
    """Record that a document is skipped, or raise an error if `strict` is set."""
    if options.strict:
        raise UserError(fault.reason, file=display_name(path), line=fault.line, remedy=fault.remedy) from fault
    skipped.add(f"{display_name(path)}:{fault.line}: {fault.reason}", fault.remedy)


def _read_pages(path: str | Path, form: str, options: TextOptions, skipped: Skipped) -> Iterator[SourceText]:
    """Yield the documents of a file of pages: one per record that is text."""
    for page in read_pages(path, form):
        if page.fault:
            _skip(_Fault(page.number, page.fault, page.remedy), path, options, skipped)
            continue
        if page.left_out:
            skipped.left_out[page.left_out] = skipped.left_out.get(page.left_out, 0) + 1
            continue
        if damage := find_damage(page.text):
            skipped.damaged.add(damage, f"{display_name(path)}:{page.number}")
        if document := _tidy(as_paragraphs(page.text)):
            yield SourceText(document, page.url)
        else:
            skipped.left_out[_EMPTY] = skipped.left_out.get(_EMPTY, 0) + 1


def _form(path: str | Path) -> str:
    """Return what a file consists of: "records", with a document in a field of each, "pages", or "text".

    Raises:
        UserError: it is a table in text, whose ids, labels and quotation marks would be learned with its texts.
    """
    if has_reader(path):
        return "records"
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    if pages_of(path):
        return "pages"
    if suffixes and suffixes[-1] in _TABLE_SUFFIXES:
        with open_bytes(path):  # names what is no text
            pass
        raise UserError(
            "is a table, all columns of which would be read as text",
            file=path,
            remedy="write its column of texts as JSON Lines or Parquet, or rename it to .txt if all of it is text",
        )
    return "records" if suffixes and suffixes[-1] in _JSON_SUFFIXES else "text"


def is_json_lines(path: str | Path) -> bool:
    """Return whether a file is JSON Lines, by its suffix."""
    return _form(path) == "records" and not has_reader(path)


def _first_checked(path: str | Path, *, is_json: bool) -> Iterator[Line]:
    """Return the lines of a file, of which the first one shows whether the others are what they are read as.

    Raises:
        UserError: they are parts of a JSON value, or JSON or markup that would be read as text.
    """
    lines = read_lines(path)
    head = list(islice(lines, 2))
    first = head[0][1] or b"" if head and head[0][0] == 1 else b""  # a section may begin later
    start = b"\n".join([first, *(line or b"" for _, line in head[1:])]).lstrip() if first else b""
    problem = remedy = ""
    if is_json and start.startswith(b"["):
        problem = "is a JSON array, not an object on each line"
        remedy = "write it as JSON Lines, for example by jq -c '.[]'"
    elif _INDENTED.match(start):
        problem = "is a JSON value of several lines, not an object on each line" if is_json else "is JSON, not text"
        remedy = "write it as JSON Lines, for example by jq -c"
    elif not is_json and _is_record(first.lstrip()):
        problem = "its lines are JSON objects, all of which would be read as text"
        remedy = "save it as a file that ends in .jsonl, of which the field of the text is read"
    elif not is_json and _MARKUP.match(start):
        problem = "begins with markup, the tags of which would be read as text"
        remedy = "extract its text first, as JSON Lines, or let the name of a page end in .html"
    if problem:
        raise UserError(problem, file=display_name(path), line=1, remedy=remedy)
    return chain(head, lines)


def _is_record(line: bytes) -> bool:
    """Return whether a line is a JSON object with a text in it."""
    try:
        record = msgspec.json.decode(line) if line.startswith(b"{") else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(record, dict) and any(isinstance(value, str) for value in record.values())


def _unparsed(path: str | Path, mode: str, *, is_json: bool) -> Iterator[Line] | Iterator[Iterator[Line]]:
    """Return the lines of JSON Lines, or the lines of each document of plain text."""
    lines = _first_checked(path, is_json=is_json)
    return lines if is_json else _groups(lines, mode)


def _groups(lines: Iterator[Line], mode: str) -> Iterator[Iterator[Line]]:
    """Yield the lines of each document as an iterator, which need not be exhausted."""
    if mode == "file":
        yield lines
    elif mode == "line":
        for line in lines:
            yield iter((line,))
    else:
        for blank, group in groupby(lines, key=_is_blank):
            if not blank:
                yield group


def _is_blank(line: Line) -> bool:
    return line[1] is not None and not line[1].decode("utf-8", "replace").replace("\0", "").strip()


def _join(lines: Iterator[Line]) -> tuple[int, SourceText]:
    """Join the lines of a plain text document; also return the number of the first one."""
    parts, size, first = [], 0, 0
    for number, raw in lines:
        first = first or number
        size += MAX_DOCUMENT + 1 if raw is None else len(raw)
        if raw is None or size > MAX_DOCUMENT:
            raise _Fault(number, TOO_LONG)
        try:
            parts.append(raw.decode())
        except UnicodeDecodeError as error:
            raise _Fault(number, f"not UTF-8 (byte {error.start + 1} of the line)", suggest(raw)) from error
        size += 1  # the newline
    return first, SourceText("\n".join(parts))


def _parser(name: str, *, is_table: bool, is_json: bool) -> Callable[[Any], tuple[int, SourceText]]:
    """Return a function that extracts the text from a row, a line of JSON or lines of text; and returns its number."""
    if is_table:
        return lambda row: (row[0], _text_of(row[1], name, row[0]))
    return _json_parser(name) if is_json else _join


def _json_parser(name: str) -> Callable[[Line], tuple[int, SourceText]]:
    """Return a function that extracts the text from a JSON line, and returns its number, too."""

    def parse(line: Line) -> tuple[int, SourceText]:
        number, raw = line
        if raw is None:
            raise _Fault(number, TOO_LONG)
        if _is_blank(line):
            return number, SourceText("")
        try:
            record = msgspec.json.decode(raw := raw.replace(b"\0", b""))
            check_keys(raw, record)
        except UnicodeDecodeError as error:
            raise _Fault(number, "not UTF-8", suggest(raw)) from error
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise _Fault(number, f"broken JSON ({error})") from error
        if not isinstance(record, dict):
            raise _Fault(number, "not a JSON object")
        return number, _text_of(record, name, number)

    return parse


def _text_of(record: Mapping[str, Any], name: str, number: int) -> SourceText:
    """Return the text of a record, and its address if there is one."""
    text = _value(record, name)
    if text is _MISSING:
        known = f" (the line has: {', '.join(islice(_fields(record), SHOWN))})" if record else ""
        raise _Fault(number, f"no field '{name}'", f"pass {argument('field', 'NAME')}{known}")
    if not isinstance(text, str):
        raise _Fault(number, f"field '{name}' is not a string")
    urls = (_value(record, field) for field in _URLS if field != name)
    return SourceText(text, next((url for url in urls if isinstance(url, str)), ""))


def _value(record: Any, name: str) -> Any:
    """Return the value of a field of a record; `a.b` is b in the object in a, unless a field has that name."""
    if not isinstance(record, Mapping):
        return _MISSING
    outer, dot, inner = name.partition(".")
    return record[name] if name in record else _value(record.get(outer), inner) if dot else _MISSING


def _fields(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the fields of a record, and of those of the objects in it."""
    for name, value in record.items():
        yield from (f"{name}.{inner}" for inner in value) if isinstance(value, Mapping) and value else (name,)


def _tidy(text: str) -> str:
    """Remove NULs, join the lines of each paragraph, and separate paragraphs by one blank line.

    A line ends wherever it does in Unicode: BERT's tokenizer removes some of these characters, such as the vertical
    tabs of Word and the form feeds of scanned text, so that the words around them would become one. A word that a soft
    hyphen divides at the end of a line is joined.
    """
    text = _DIVIDED.sub("", text.replace("\0", "")).strip()
    paragraphs = PARAGRAPH_BREAK.split(text) if "\n" in text else [text]
    return "\n\n".join(" ".join(filter(None, map(str.strip, paragraph.splitlines()))) for paragraph in paragraphs)
