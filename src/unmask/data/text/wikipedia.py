"""Dumps of wikis, such as `enwiki-latest-pages-articles.xml.bz2`: the text of their articles.

Input: XML of MediaWiki (export-0.10 and 0.11), optionally compressed. Output: a `Page` for each one in it: the text of
its last revision, below its title (wikitext.py). Redirects, and pages of other namespaces than that of articles, are
left out and counted. The XML is parsed as it is read; one that declares a document type is refused, as its entities
could expand without end, and one that is damaged gives the pages before the damage and a fault.

The streams of bzip2 in a dump ("multistream") begin with pages, a hundred as a rule: at such places, and at any page of
a dump that is not compressed, it can be divided (`find_pages`, `count_pages`).
"""

from __future__ import annotations

import bz2
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from xml.parsers import expat

from unmask.data.text.content import START
from unmask.data.text.files import FREE, MAX_DOCUMENT, MAX_RATIO, TOO_LONG, open_binary
from unmask.data.text.pages import Page
from unmask.data.text.section import Section
from unmask.data.text.wikitext import FILES, plain_text

_BLOCK = 1 << 16
_FILES = ("6", "14")
"""Numbers of the namespaces of files and of categories."""
_TEXTS = ("title", "ns", "text", "namespace", "model")
_ROOT, _ROOT_END = b"<mediawiki>", b"</mediawiki>"
_REDIRECT = re.compile(r"\s*#\w+\s*:?\s*\[\[")
"""The start of the text of a redirect, which dumps of old wikis do not mark."""
_STREAM = re.compile(rb"BZh[1-9]1AY&SY")
"""Start of a stream of bzip2, and of its first block."""
_PAGE = re.compile(rb"(?<=>)\s*(<page>)")
_LONGEST = 64  # bytes of what is sought
_BETWEEN = re.compile(rb"</(?:page|siteinfo)\s*>\s*")
_ENCODING = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"'](?!utf-8[\"'])", re.IGNORECASE)


def _refuse_doctype(*_: Any) -> None:
    raise ValueError("it declares a document type, as no dump does")


class _Dump:
    """What has been parsed of a dump.

    Attributes:
        pages: pages that have been read since they were last taken.
        number: how many have begun.
        files: names of the namespaces of files and of categories.
        is_inside: whether the last one has not ended.
    """

    def __init__(self) -> None:
        self.pages: list[Page] = []
        self.number, self.is_inside = 0, False
        self.files = set(FILES)
        self._key = ""
        self._name, self._parts, self._size = "", list[str](), 0
        self._fields: dict[str, str] = {}
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._take
        self.parser.StartDoctypeDeclHandler = _refuse_doctype

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "page":
            self.number += 1
            self.is_inside, self._fields = True, {}
        elif name == "redirect":
            self._fields["redirect"] = "yes"
        elif name in _TEXTS:
            self._name, self._parts, self._size = name, [], 0
            self._key = attributes.get("key", "")

    def _take(self, text: str) -> None:
        if self._name:
            self._size += len(text)
            if self._size <= MAX_DOCUMENT:
                self._parts.append(text)

    def _end(self, name: str) -> None:
        if name == "page":
            self.is_inside = False
            self.pages.append(self._page())
        elif name == self._name:
            text = "".join(self._parts) if self._size <= MAX_DOCUMENT else "\0"
            self._fields[name] = text
            if name == "namespace" and self._key in _FILES:
                self.files.add(text.strip().lower())
            self._name = ""

    def _page(self) -> Page:
        fields = self._fields
        if "redirect" in fields or _REDIRECT.match(fields.get("text", "")):
            return Page(self.number, left_out="redirect")
        if fields.get("ns", "0").strip() != "0":
            return Page(self.number, left_out="page that is no article")
        if fields.get("model", "wikitext") != "wikitext":
            return Page(self.number, left_out=f"page in {fields['model'][:40]}")
        markup = fields.get("text", "")
        if markup == "\0":
            return Page(self.number, fault=TOO_LONG)
        text = plain_text(markup, self.files)
        return Page(self.number, f"{fields.get('title', '').strip()}\n{text}" if text else "")


def read_dump(path: str | Path) -> Iterator[Page]:
    """Read the pages of a dump, or of a section of one; see `read_pages`."""
    dump, end = _Dump(), b""
    if isinstance(path, Section):
        dump.number, end = path.before, b"" if path.is_last else _ROOT_END
        if path.start:
            dump.files = _files_of(path)
            dump.parser.Parse(_ROOT)
    with open_binary(path) as file:
        try:
            while True:
                block = file.read(_BLOCK)
                dump.parser.Parse(block or end, not block)
                yield from dump.pages
                dump.pages.clear()
                if not block:
                    return
        except (expat.ExpatError, ValueError) as error:
            yield from dump.pages
            reason = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else error
            yield Page(
                dump.number + (not dump.is_inside), fault=f"the dump is damaged ({reason})", remedy="download it again"
            )


def _files_of(section: Section) -> set[str]:
    """Return the names of the namespaces of files and of categories, which precede the first page of a dump."""
    dump = _Dump()
    with open_binary(section.whole) as file, suppress(expat.ExpatError):  # of a page, which its section reports
        while not dump.number and (block := file.read(START)):
            dump.parser.Parse(block)
    return dump.files


def is_in_utf8(start: bytes) -> bool:
    """Return whether a dump declares no other encoding, given its first bytes."""
    return _ENCODING.search(start) is None


def find_pages(file: BinaryIO, start: int) -> int | None:
    """Return the first place from `start` on where pages seem to begin; None: there is none.

    Reading from where they do begin tells whether they are pages (`count_pages`).

    Args:
        file: the dump; compressed by bzip2, or not.
        start: a place in it, after 0.
    """
    begins = _STREAM if file.read(3) == b"BZh" else _PAGE
    place, content = max(0, start - _LONGEST), b""  # of the content in the file
    file.seek(place)
    while block := file.read(_BLOCK):
        content += block
        for match in begins.finditer(content):
            found = place + match.start(match.re.groups)
            if found >= start and (begins is _PAGE or _holds_pages(file, found)):
                return found
        kept = content[-_LONGEST:]
        place += len(content) - len(kept)
        content = kept
        file.seek(place + len(content))
    return None


def _holds_pages(file: BinaryIO, start: int) -> bool:
    """Return whether a stream of bzip2 begins with a page."""
    file.seek(start)
    inflater = bz2.BZ2Decompressor()
    try:
        content = b""
        while len(content) < START and not inflater.eof and (block := file.read(_BLOCK)):
            content += inflater.decompress(block, START)
    except OSError:
        return False
    return _PAGE.match(b">" + content, 1) is not None


def count_pages(file: BinaryIO, start: int, stop: int) -> tuple[int, int | None]:
    """Return the number of pages from one place of a dump to another, and where the next ones begin.

    Args:
        file: the dump; compressed by bzip2, or not.
        start: where pages begin, or 0.
        stop: where the next ones are sought.

    Returns:
        The number, and None if the dump ends or is damaged before there is a place at which pages begin.
    """
    is_packed = file.read(3) == b"BZh"
    file.seek(start)
    counter = _Counter(start)
    try:
        if is_packed:
            stopped = _count_in_streams(file, start, stop, counter)
            return counter.count, stopped
        counter.stop = stop
        while counter.stopped is None and (block := file.read(_BLOCK)):
            counter.parse(block)
    except (expat.ExpatError, ValueError, OSError):
        pass  # which reading names; of what follows, nothing is known
    return counter.count, counter.stopped


def _count_in_streams(file: BinaryIO, start: int, stop: int, counter: _Counter) -> int | None:
    """Count pages in streams of bzip2; return where a stream begins that can be read without those before it."""
    inflater, end, size, packed = bz2.BZ2Decompressor(), start, 0, b""
    while True:
        if inflater.eof:
            packed = inflater.unused_data
            if end - len(packed) >= stop and counter.is_between_pages:
                return end - len(packed)
            inflater = bz2.BZ2Decompressor()
        if inflater.needs_input and not packed:
            packed = file.read(_BLOCK)
            end += len(packed)
            if not packed:
                return None
        content = inflater.decompress(packed, _BLOCK)
        size, packed = size + len(content), b""
        if size > max(FREE, MAX_RATIO * (end - start)):
            return None
        counter.parse(content)


class _Counter:
    """Counts the pages of a dump, from a place on.

    Attributes:
        count: number of pages.
        stop: in a file that is not compressed, the place from which on a page ends counting; None: none does.
        stopped: where that page begins.
    """

    def __init__(self, start: int) -> None:
        self.count = 0
        self.stop: int | None = None
        self.stopped: int | None = None
        self._depth = self._ended = self._fed = 0  # bytes: where the last element ended, and all
        self._tail = b""
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._begin
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = _refuse_doctype
        self._offset = start - len(_ROOT) if start else 0
        if start:
            self.parse(_ROOT)

    def parse(self, content: bytes) -> None:
        self._fed += len(content)
        self._parser.Parse(content)
        self._tail = (self._tail + content)[-START:]

    @property
    def is_between_pages(self) -> bool:
        """Whether what was parsed ends between two pages, and not in a comment."""
        length = self._fed - self._ended
        return self._depth == 1 and length <= START and _BETWEEN.fullmatch(self._tail[-length:]) is not None

    def _begin(self, name: str, _: dict[str, str]) -> None:
        if name == "page" and self.stopped is None:
            place = self._parser.CurrentByteIndex + self._offset
            if self.stop is not None and place >= self.stop and self._depth == 1:
                self.stopped = place
                return
            self.count += 1
        self._depth += 1

    def _end(self, name: str) -> None:
        self._depth -= 1
        self._ended = self._parser.CurrentByteIndex
