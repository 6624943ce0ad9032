"""EPUB books: a zip archive of chapters in XHTML, and a package that lists them in order.

Input: a file. Output: a `Page` with the text of all chapters of the spine (EPUB 3.3, sections 4 and 5.7), after one
with the fault of each chapter that is missing or damaged, without which the book is read. Nothing is unpacked to the
disk; what entries expand to is bounded, and encrypted books are refused.
"""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import unquote
from xml.etree import ElementTree

from unmask.data.text.files import MAX_DOCUMENT, TOO_LONG, read_at_most
from unmask.data.text.html import PageError, html_text
from unmask.data.text.pages import Page

_CONTAINER = "META-INF/container.xml"
_ENCRYPTED = "META-INF/encryption.xml"
_FONT = b"obfuscation"
"""Part of the names of algorithms that change fonts alone."""
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, LZMAError, KeyError, ElementTree.ParseError),
    *(NotImplementedError, RuntimeError, EOFError, OSError, ValueError),
)
"""What a damaged archive, or a damaged entry of one, raises."""


def read_epub(path: str | Path) -> Iterator[Page]:
    """Read a book; see `read_pages`."""
    with Path(path).open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                yield from _read_book(archive)
        except PageError as error:
            yield Page(1, fault=str(error))
        except _DAMAGE as error:
            yield Page(1, fault=f"is damaged ({str(error)[:200]})", remedy="download it again")


def _read_book(archive: zipfile.ZipFile) -> Iterator[Page]:
    texts, size = [], 0
    for number, name in enumerate(_chapters(archive), 1):
        try:
            texts.append(html_text(_read(archive, name), main=False, is_xml=True))
        except PageError as error:
            yield Page(number, fault=str(error))
        except _DAMAGE as error:
            yield Page(number, fault=f"{name}: cannot be read ({str(error)[:200]})", remedy="download the book again")
        else:
            size += len(texts[-1])
        if size > MAX_DOCUMENT:
            raise PageError(TOO_LONG)
    yield Page(1, "\n".join(texts))


def _chapters(archive: zipfile.ZipFile) -> list[str]:
    """Return the names of the chapters, in order.

    Raises:
        PageError: the book is encrypted, or names none.
    """
    names = set(archive.namelist())
    if _ENCRYPTED in names and _encrypts_text(_read(archive, _ENCRYPTED)):
        raise PageError("is encrypted")
    container = ElementTree.fromstring(_read(archive, _CONTAINER))
    package = next((node.attrib["full-path"] for node in container.iter() if _is(node, "rootfile")), "")
    if not package:
        raise PageError("names no package")
    root = ElementTree.fromstring(_read(archive, package))
    items = {node.attrib["id"]: node.attrib for node in root.iter() if _is(node, "item")}
    spine = [items.get(node.attrib.get("idref", "")) for node in root.iter() if _is(node, "itemref")]
    return [
        posixpath.normpath(posixpath.join(posixpath.dirname(package), unquote(item["href"])))
        for item in spine
        if item is not None and "html" in item.get("media-type", "") and "nav" not in item.get("properties", "").split()
    ]


def _encrypts_text(encryption: bytes) -> bool:
    root = ElementTree.fromstring(encryption)
    methods = [node.attrib.get("Algorithm", "").encode() for node in root.iter() if _is(node, "EncryptionMethod")]
    return any(_FONT not in method.lower() and b"ident" not in method.lower() for method in methods)


def _is(node: ElementTree.Element, name: str) -> bool:
    return isinstance(node.tag, str) and node.tag.rpartition("}")[2] == name


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    """Read an entry.

    Raises:
        PageError: it is too long.
    """
    with archive.open(name) as file:
        content = read_at_most(cast(BinaryIO, file), MAX_DOCUMENT + 1)
    if len(content) > MAX_DOCUMENT:
        raise PageError(f"{name}: {TOO_LONG}")
    return content
