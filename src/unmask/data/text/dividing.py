"""Division of large files into sections, each of which is read on its own, as when the whole file is read.

Input: a file and places in it. Output: `Section`s that begin and end with records, near these places, and the number of
records before each. Together they give the documents of the file, in the same order, with the same numbers.

    lines     plain text (documents are lines, or end with blank lines) and JSON Lines, in UTF-8, not compressed
    archives  WARC, WET and ARC, not compressed or with records that are members of gzip
    dumps     of wikis, not compressed or in several streams of bzip2
    tables    Parquet, at row groups

A place in the middle of a file can lie: a page may hold an archive, and a comment a page. So each section is read from
its start to find where the next one begins (`scan`), all at the same time; those that begin where another one was found
to end are right, beginning with the first, and others are read again (`join_scans`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from unmask.data.text.archive_records import count_records, find_record
from unmask.data.text.content import START
from unmask.data.text.documents import TextOptions, is_json_lines
from unmask.data.text.encodings import MARKS
from unmask.data.text.files import COMPRESSED, on_disk, open_binary, pages_of
from unmask.data.text.record_files import READERS, has_reader, read_arrow, row_groups
from unmask.data.text.section import Section, open_part
from unmask.data.text.wikipedia import count_pages, find_pages, is_in_utf8

_BLOCK = 1 << 20
_BLANK = re.compile(rb"\n[ \t\r\0]{0,64}\n")
_LINE = re.compile(rb"\n")
_LONGEST_BLANK = 66
AHEAD = 1 << 18
"""Number of bytes behind the end of a section that decide where it is: more than damaged archives are searched back."""


class Scan(msgspec.Struct, frozen=True):
    """What was found by reading from a place in a file.

    Attributes:
        start: where the first record from there on seems to begin; None: there is none.
        stop: where the section that begins there ends; None: it was not found.
        count: number of its records, or lines.
    """

    start: int | None = None
    stop: int | None = None
    count: int = 0


def form_of(path: str | Path, options: TextOptions, documents: str) -> str:
    """Return how a file can be divided; "": it cannot be.

    Args:
        path: a file.
        options: how it is read.
        documents: what a document is in plain text (`resolve_documents`).
    """
    suffix = Path(path).suffix.lower()
    if has_reader(path):
        return "parquet" if suffix == ".parquet" and READERS.get("parquet") is read_arrow else ""
    form = pages_of(path)
    is_compressed = suffix in COMPRESSED
    if form in ("warc", "arc"):
        return form if suffix == ".gz" or not is_compressed else ""
    if form == "mediawiki":
        with open_binary(path) as dump:
            start = dump.read(START)
        return form if is_in_utf8(start) and (suffix == ".bz2" or not is_compressed) else ""
    if form or is_compressed or options.encoding:
        return ""
    with open_binary(path) as text:
        start = text.read(START)
    if any(start.startswith(mark) for mark, name in MARKS if name != "utf-8-sig"):
        return ""
    return {"line": "lines", "blank-line": "blocks"}.get("line" if is_json_lines(path) else documents, "")


def scan(
    path: str | Path, form: str, low: int, high: int, *, most: int | None = None, start: int | None = None
) -> Scan:
    """Find the section that begins with the first record from one place on, and ends before the first from another on.

    Args:
        path: the file.
        form: see `form_of`.
        low, high: the places, in bytes.
        most: no more bytes are read from the first place on; None: as many as it takes.
        start: where the section begins, if that is known.
    """
    with on_disk(path) as copy:
        size = Path(copy).stat().st_size
        limit = size if most is None else min(size, low + most)
        if form == "parquet":
            return _scan_groups(Path(copy), low, high)
        with open_part(copy, 0, limit) as file:
            if start is None:
                start = 0 if low == 0 else _find(file, form, low)
            if start is None or start >= limit:
                return Scan()
            file.seek(0)
            count, stop = _count(file, form, start, high)
    near = stop is not None and limit < size and stop > limit - AHEAD  # which the rest could change
    return Scan(start, None if near else stop, count)


def join_scans(path: str | Path, form: str, places: Sequence[int], size: int, scans: Sequence[Scan]) -> list[Section]:
    """Return the sections of a file.

    Args:
        path, form: see `scan`.
        places: the places at which it is to be divided, in ascending order, beginning with 0.
        size: size of the file in bytes.
        scans: what was found from each place to the next.
    """
    sections: list[Section] = []
    start, before, index = 0, 0, 0
    while index < len(scans):
        known = scans[index]
        if known.start != start or known.stop is None:
            if all(other.start is None or other.start <= start for other in scans[index:]):
                break  # no record seems to begin there
            known = scan(path, form, places[index], places[index + 1], start=start)
        if known.stop is None or known.stop >= size:
            break
        sections.append(Section(path, start, known.stop, before, is_last=False))
        start, before = known.stop, before + known.count
        while index < len(scans) and places[index + 1] <= start:
            index += 1
    return [*sections, Section(path, start, size, before, is_last=True)]


def _scan_groups(path: Path, low: int, high: int) -> Scan:
    groups = row_groups(path)
    if low == 0 and groups:
        groups[0] = (0, groups[0][1])
    inside = [(start, rows) for start, rows in groups if low <= start < high]
    stop = next((start for start, _ in groups if start >= high), None)
    return Scan(inside[0][0] if inside else stop, stop, sum(rows for _, rows in inside))


def _find(file: BinaryIO, form: str, place: int) -> int | None:
    """Return where the first record from a place on seems to begin; None: there is none."""
    if form in ("lines", "blocks"):
        return _find_end(file, form, place)
    return find_pages(file, place) if form == "mediawiki" else find_record(file, form, place)


def _count(file: BinaryIO, form: str, start: int, place: int) -> tuple[int, int | None]:
    """Return the number of records from where one begins to a place, and where the first from there on begins."""
    if form not in ("lines", "blocks"):
        return count_pages(file, start, place) if form == "mediawiki" else count_records(file, form, start, place)
    stop = _find_end(file, form, place)
    file.seek(start)
    count, left = 0, (stop or start) - start
    while left and (block := file.read(min(_BLOCK, left))):
        count, left = count + block.count(b"\n"), left - len(block)
    return count, stop


def _find_end(file: BinaryIO, form: str, place: int) -> int | None:
    """Return the first place from another on where a line, or a blank line, has ended; None: there is none."""
    ends = _BLANK if form == "blocks" else _LINE
    at, content = max(0, place - _LONGEST_BLANK), b""  # where the content is in the file
    file.seek(at)
    while block := file.read(_BLOCK):
        content += block
        match = ends.search(content)
        while match and at + match.end() < place:
            match = ends.search(content, match.start() + 1)
        if match:
            return at + match.end()
        at += max(0, len(content) - _LONGEST_BLANK)
        content = content[-_LONGEST_BLANK:]
    return None
