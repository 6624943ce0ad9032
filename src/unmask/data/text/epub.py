"""EPUB books: a zip archive of chapters in XHTML, and a package that lists them in order.

Input: a file. Output: a `Page` with the text of all chapters of the spine (EPUB 3.3, sections 4 and 5.7), after one
with the fault of each chapter that is missing or damaged, without which the book is read. Nothing is unpacked to the
disk; what entries expand to is bounded, and encrypted books are refused.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
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
_MEDIA = ("image/", "audio/", "video/")
_HTML = re.compile("html|oeb1-document|dtbook")
"""Media types of chapters: those of XHTML, of the format before EPUB, and of books for the blind."""
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
    for number, (name, fault) in enumerate(_chapters(archive), 1):
        if fault:
            yield Page(number, fault=fault)
            continue
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


def _chapters(archive: zipfile.ZipFile) -> list[tuple[str, str]]:
    """Return the names of the chapters, in order; of an entry of the spine that names none, "" and why.

    Media are no chapters, nor are tables of contents.

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
    items = {node.attrib.get("id", ""): node.attrib for node in root.iter() if _is(node, "item")}
    chapters = []
    for reference in (node.attrib.get("idref", "") for node in root.iter() if _is(node, "itemref")):
        item = _readable(items, reference)
        href, kind = unquote(item.get("href", "").partition("#")[0]), item.get("media-type", "")
        if "nav" in item.get("properties", "").split() or kind.startswith(_MEDIA):
            continue
        if not href:
            chapters.append(("", f"its package does not say where '{reference[:40]}' of the spine is"))
        elif kind and not _HTML.search(kind):
            chapters.append(("", f"{href[:40]}: is {kind[:40]}, which is not read"))
        else:
            chapters.append((posixpath.normpath(posixpath.join(posixpath.dirname(package), href)), ""))
    if not chapters:
        raise PageError("names no chapter")
    return chapters


def _readable(items: Mapping[str, Mapping[str, str]], name: str) -> Mapping[str, str]:
    """Return an item of the package, or that which stands for it where it is no text (EPUB 3.3, 5.6.2.1)."""
    seen = set[str]()
    while name not in seen and (item := items.get(name)) is not None:
        seen.add(name)
        if item.get("fallback", "") not in items or _HTML.search(item.get("media-type", "")):
            return item
        name = item["fallback"]
    return items.get(name, {})


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
