"""Dumps of wikis, such as `enwiki-latest-pages-articles.xml.bz2`: the text of their articles.

Input: XML of MediaWiki (export-0.10 and 0.11), optionally compressed. Output: a `Page` for each one in it: the text of
its last revision, below its title (wikitext.py). Redirects, and pages of other namespaces than that of articles, are
left out and counted. The XML is parsed as it is read; one that declares a document type is refused, as its entities
could expand without end, and one that is damaged gives the pages before the damage and a fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.parsers import expat

from unmask.data.text.files import MAX_DOCUMENT, TOO_LONG, open_binary
from unmask.data.text.pages import Page
from unmask.data.text.wikitext import FILES, plain_text

_BLOCK = 1 << 16
_FILES = ("6", "14")
"""Numbers of the namespaces of files and of categories."""
_TEXTS = ("title", "ns", "text", "namespace", "model")


class _Dump:
    """What has been parsed of a dump.

    Attributes:
        pages: pages that have been read since they were last taken.
        number: how many have begun.
        is_inside: whether the last one has not ended.
    """

    def __init__(self) -> None:
        self.pages: list[Page] = []
        self.number, self.is_inside = 0, False
        self._files = set(FILES)
        self._key = ""
        self._name, self._parts, self._size = "", list[str](), 0
        self._fields: dict[str, str] = {}
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._take
        self.parser.StartDoctypeDeclHandler = self._refuse

    def _refuse(self, *_: Any) -> None:
        raise ValueError("it declares a document type, as no dump does")

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
                self._files.add(text.strip().lower())
            self._name = ""

    def _page(self) -> Page:
        fields = self._fields
        if "redirect" in fields:
            return Page(self.number, left_out="redirect")
        if fields.get("ns", "0").strip() != "0":
            return Page(self.number, left_out="page that is no article")
        if fields.get("model", "wikitext") != "wikitext":
            return Page(self.number, left_out=f"page in {fields['model'][:40]}")
        markup = fields.get("text", "")
        if markup == "\0":
            return Page(self.number, fault=TOO_LONG)
        text = plain_text(markup, self._files)
        return Page(self.number, f"{fields.get('title', '').strip()}\n{text}" if text else "")


def read_dump(path: str | Path) -> Iterator[Page]:
    """Read the pages of a dump; see `read_pages`."""
    dump = _Dump()
    with open_binary(path) as file:
        try:
            while True:
                block = file.read(_BLOCK)
                dump.parser.Parse(block, not block)
                yield from dump.pages
                dump.pages.clear()
                if not block:
                    return
        except (expat.ExpatError, ValueError) as error:
            yield from dump.pages
            yield Page(
                dump.number + (not dump.is_inside), fault=f"the dump is damaged ({error})", remedy="download it again"
            )
