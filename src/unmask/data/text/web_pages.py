"""Pages of the web: the text of records of web archives, and of files of HTML.

Input: WARC files of responses (WARC), of text (WET), ARC files, or HTML. Output: a `Page` for each record. Read are
responses with status 200 and resources that are HTML or plain text by their bytes, whatever their server said, and
conversions to text; others are left out and counted.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from unmask.data.text.archive_records import Damage, Record, read_records
from unmask.data.text.content import START, recognize, recognize_binary
from unmask.data.text.encodings import encoding_of
from unmask.data.text.files import MAX_DOCUMENT, TOO_LONG, on_disk, open_binary, read_at_most
from unmask.data.text.html import PageError, decode_page, html_text
from unmask.data.text.pages import Page
from unmask.data.text.section import Section
from unmask.support.errors import UserError

_STATUS = re.compile(rb"HTTP/[\d.]+\s+(\d{3})\b[^\n]*\n|HTTP/[\d.]+\s*\n")
_CHARSET = re.compile(r"charset\s*=[\s\"']*([\w:.-]+)", re.IGNORECASE)
_END = re.compile(rb"\r?\n\r?\n")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_HTML = ("text/html", "application/xhtml+xml", "application/xml", "text/xml")
_XHTML = re.compile(r"\.(?:xhtml|xht)(?:\.(?:gz|bz2|xz|zst))?$", re.IGNORECASE)
_GZIP = b"\x1f\x8b"
_MAX_MEMBERS = 100
"""Maximum number of members of a body: what follows each one is copied."""
_UNKNOWN = ("", "application/octet-stream", "unk", "no-type")


class _Payload(NamedTuple):
    """What a server sent: status, media type, encoding that it declares, and content."""

    status: int
    type: str
    charset: str
    content: bytes


def read_html(path: str | Path) -> Iterator[Page]:
    """Read a file of HTML; see `read_pages`."""
    with open_binary(path) as file:
        content = read_at_most(file, MAX_DOCUMENT + 1)
    try:
        yield Page(1, html_text(content, encoding_of(path) or "", is_xml=_XHTML.search(str(path)) is not None))
    except PageError as error:
        yield Page(1, fault=str(error))


def _read_archive(path: str | Path, *, form: str) -> Iterator[Page]:
    section = (path.start, path.stop, path.before) if isinstance(path, Section) else ()
    if section or Path(path).suffix.lower() == ".gz":  # its damage is dealt with where records are read
        with on_disk(path) as file, Path(file).open("rb") as stored:
            yield from map(_page, read_records(stored, form, *section))
    else:
        with open_binary(path) as stream:
            yield from map(_page, read_records(stream, form))


read_warc, read_arc = (partial(_read_archive, form=form) for form in ("warc", "arc"))
"""Read a WARC or WET file, or an ARC file; see `read_pages`."""


def _page(record: Record | Damage) -> Page:
    """Return the page of a record."""
    if isinstance(record, Damage):
        return Page(record.number, fault=record.reason)
    number, block = record.number, record.block
    if record.kind == "conversion":
        return Page(number, decode_page(block, _charset(record.type)), url=record.url)
    if record.url.startswith(("dns:", "whois:")):
        return Page(number, left_out=f"record of {record.url.partition(':')[0]}")
    if record.kind not in ("response", "resource"):
        return Page(number, left_out=f"record of type {record.kind or 'unknown'}")
    try:
        payload = _payload(record)
        if payload.status != 200:
            return Page(number, left_out=f"page with status {payload.status}")
        return _text(number, payload)._replace(url=record.url)
    except PageError as error:
        return Page(number, fault=str(error))


def _text(number: int, payload: _Payload) -> Page:
    """Return the page of a payload."""
    start = payload.content[:START]
    content = recognize(start)
    if content is not None and content.pages != "html" and not (content.name == "XML" and payload.type in _HTML[:2]):
        return Page(number, left_out=content.name)
    if content is not None or payload.type in _HTML[:2]:
        if recognize_binary(start) is not None and b"<" not in start:
            return Page(number, left_out="binary")
        return Page(number, html_text(payload.content, payload.charset, is_xml=payload.type == _HTML[1]))
    if payload.type != "text/plain":
        return Page(number, left_out=payload.type or "content of unknown type")
    text = decode_page(payload.content, payload.charset)
    if recognize_binary(text[:START].encode("utf-8", "replace")) is not None:
        return Page(number, left_out="binary")
    return Page(number, text)


def _payload(record: Record) -> _Payload:
    """Return what a server sent.

    Raises:
        PageError: it is too long, or damaged.
    """
    block = record.block
    status = _STATUS.match(block)
    if status is None:
        return _Payload(200, _type(record.type), _charset(record.type), block)
    end = _END.search(block)
    head, body = (block[: end.start()], block[end.end() :]) if end else (block, b"")
    fields = {}
    for line in head.decode("latin-1").splitlines()[1:]:
        name, colon, value = line.partition(":")
        if colon:
            fields[name.strip().lower()] = value.strip()
    body = _without_codings(body, fields.get("content-encoding", ""), fields.get("transfer-encoding", ""))
    kind = fields.get("content-type", "")
    return _Payload(int(status[1] or 0), _type(kind), _charset(kind), body)


def _type(field: str) -> str:
    kind = field.partition(";")[0].strip().lower()
    return "" if kind in _UNKNOWN else kind


def _charset(field: str) -> str:
    match = _CHARSET.search(field)
    return match[1] if match else ""


def _without_codings(body: bytes, content: str, transfer: str) -> bytes:
    """Return the body of a message without the codings in two fields of its header (RFC 9110, 8.4; RFC 9112, 6.1)."""
    applied = [coding.strip() for coding in f"{content},{transfer}".lower().split(",")]
    for coding in filter(None, reversed(applied)):
        body = _without_chunks(body) if coding == "chunked" else _decompressed(body, coding)
    return body


def _without_chunks(body: bytes) -> bytes:
    """Return the body of a message in chunks (RFC 9112, 7.1); as it is, if it has none although its header says so."""
    parts: list[bytes] = []
    at = 0
    while match := _CHUNK.match(body, at):
        size = int(match[1], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(body[match.end() : match.end() + size])
        at = match.end() + size
        at += 2 if body.startswith(b"\r\n", at) else 1 if body.startswith(b"\n", at) else 0
    if not parts:
        return body
    raise PageError("its chunks are damaged")


def _decompressed(body: bytes, coding: str) -> bytes:
    """Return the body of a message without a coding; as it is, if archives have removed that already.

    Servers say deflate of what is compressed by gzip, too. What follows it is no part of it, as in browsers.
    """
    is_gzip = body.startswith(_GZIP)
    try:
        if is_gzip and coding in ("gzip", "x-gzip", "deflate"):
            content = _inflated(body, 31)
        elif not body or coding in ("identity", "gzip", "x-gzip") or body.lstrip().startswith(b"<"):
            return body
        elif coding == "deflate":
            content = _inflated(body, zlib.MAX_WBITS if body[0] & 15 == 8 else -zlib.MAX_WBITS)
        elif coding == "br":
            content = _from_brotli(body)
        else:
            raise PageError(f"is compressed by {coding[:20]}, which is not read")
    except (ValueError, EOFError, zlib.error) as error:
        raise PageError(f"its content cannot be decompressed ({error})") from error
    if len(content) > MAX_DOCUMENT:
        raise PageError(TOO_LONG)
    return content


def _inflated(body: bytes, wbits: int) -> bytes:
    """Return what is in gzip's members, or in a stream of deflate; what is too long, in part."""
    content = b""
    for _ in range(_MAX_MEMBERS):
        inflater = zlib.decompressobj(wbits)
        content += inflater.decompress(body, MAX_DOCUMENT + 1 - len(content))
        if len(content) > MAX_DOCUMENT:
            return content
        if not inflater.eof:
            raise EOFError("it is cut off")
        body = inflater.unused_data
        if not body.startswith(_GZIP):
            return content
    raise ValueError(f"it has more than {_MAX_MEMBERS} members")


def _from_brotli(body: bytes) -> bytes:
    """Return what is compressed by Brotli (RFC 7932); what is too long, in part.

    Raises:
        UserError: brotli is not installed.
    """
    try:
        import brotli
    except ImportError as error:
        raise UserError("pages compressed by br need brotli", remedy="pip install 'unmask[web]'") from error
    decompressor = brotli.Decompressor()
    try:
        content = bytes(decompressor.process(body, output_buffer_limit=MAX_DOCUMENT + 1))
    except brotli.error as error:
        raise ValueError("it is damaged") from error
    if not decompressor.is_finished() and len(content) <= MAX_DOCUMENT:
        raise EOFError("it is cut off")
    return content
