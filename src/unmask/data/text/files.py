"""Opening of raw and labeled files, and reading of their lines in bounded memory.

Input: the path or the `Url` of a plain, `.gz`, `.bz2`, `.xz` or `.zst` file, or `-` for standard input. Output: bytes,
or numbered lines; text in another encoding, which the path names or a byte-order mark declares, is read as UTF-8. What
is not text by its content (content.py) is refused, whatever its name.

Three limits bound what a file from elsewhere can make a reader allocate: `MAX_DOCUMENT` for a line, `MAX_JSON` for a
file that is a single JSON value, and `MAX_RATIO` for what a compressed file may expand to. A plain file has no limit of
the last kind, so decompressing a file by another program is the way around it.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, cast

import msgspec

from unmask.data.text.concatenated import read_streams
from unmask.data.text.content import MARK, START, Content, recognize, recognize_binary
from unmask.data.text.encodings import EncodedPath, EncodingError, encoding_of, in_utf8, suggest, with_encoding
from unmask.data.text.json_keys import check_keys
from unmask.data.text.section import Section, open_raw
from unmask.support.errors import UserError
from unmask.support.urls import Url, address_of

MAX_DOCUMENT = 10_000_000
"""Maximum size of a document, and so of a line and of a record, in bytes."""
MAX_JSON = 1 << 28
"""Maximum size of a file that is a single JSON value, in bytes; the largest published one is a fifth of it."""
MAX_RATIO = 100
"""Maximum number of bytes that a compressed byte may stand for; compressed text has 3 to 20."""
FREE = 1 << 24
"""Number of decompressed bytes up to which `MAX_RATIO` does not apply, as short files may be repetitive."""
TOO_LONG = f"longer than {MAX_DOCUMENT:,} bytes"
"""What messages about such a document, line or record have in common."""

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
"""Suffixes of compressed files."""

_HTML = re.compile(r"\.x?html?(?:\.(?:gz|bz2|xz|zst))?$", re.IGNORECASE)
_PART = re.compile(r"(.+?\.(?:sqlite3?|db|xlsx|ods))#(.+)", re.IGNORECASE | re.DOTALL)
_BLOCK = 1 << 20
_LINES = 1 << 16
"""Maximum number of bytes whose lines are in memory at once, besides a longer line."""
_MARKS = re.compile("^\ufeff+", re.MULTILINE)


class ExpansionError(Exception):
    """Raised while a compressed file is read that expands to more than `MAX_RATIO` times its size."""


class DamagedError(Exception):
    """Raised while a compressed file is read that is damaged."""


class _Expanded(io.RawIOBase):
    """The decompressed bytes of a file, which must not be many more than those it was read from."""

    def __init__(self, path: str | Path, unpack: Callable[[BinaryIO], Any]) -> None:
        self._packed = cast(BinaryIO, open_raw(path))
        self._archive = unpack(self._packed)
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            count: int = self._archive.readinto(buffer)
        except OSError as error:
            if error.errno is None and not isinstance(error, gzip.BadGzipFile):  # of pyarrow and bz2: damaged
                raise DamagedError(str(error)) from error
            raise
        self._size += count
        if self._size > max(FREE, MAX_RATIO * self._packed.tell()):
            raise ExpansionError
        return count

    def close(self) -> None:
        self._archive.close()
        self._packed.close()
        super().close()


def display_name(path: object) -> str:
    """Return the name of a file, or of examples in memory, for messages."""
    return "standard input" if str(path) == "-" else str(path)


def split_part(path: str | Path) -> tuple[Path, str]:
    """Return the path of a file of several tables, and what follows a `#`: the table or the sheet; "" if there is none.

    The file may also be a directory with the splits of a data set. A path at which there is a file, or that has before
    the `#` neither a suffix of such files nor is a directory there, is taken as it is.
    """
    text = str(path)
    if "#" not in text or Path(path).exists():
        return Path(path), ""
    if match := _PART.fullmatch(text):
        return Path(match[1]), match[2]
    folder, _, part = text.partition("#")
    return (Path(folder), part) if folder and part and Path(folder).is_dir() else (Path(path), "")


@contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file of text for reading, decompressed and in UTF-8.

    Args:
        path: a plain file, one that ends in `.gz`, `.bz2`, `.xz` or `.zst` (which needs pyarrow), or `-` for standard
            input (which is left open); it may name the encoding (`EncodedPath`).

    Yields:
        The stream of its bytes.

    Raises:
        UserError: the file cannot be opened, or is no text; or, while it is read, its archive is found to be damaged or
            to expand too much, or its text not to be in the encoding of its path or byte-order mark.
    """
    try:
        if str(path) == "-":
            yield _standard_input(encoding_of(path))
            return
        with open_binary(path) as stream:
            if isinstance(path, Section) and path.start:  # what the file is, its start says
                yield stream
                return
            try:
                text = _as_text(stream, path)
            except ExpansionError as error:
                raise expands_too_much(path, 1) from error
            yield text
    except EncodingError as error:
        raise UserError(str(error), file=display_name(path), line=error.line, remedy=error.remedy) from error


def _as_text(stream: io.BufferedReader, path: str | Path) -> BinaryIO:
    """Return a stream of text as UTF-8.

    Raises:
        UserError: it is no text.
    """
    _refuse(recognize(stream.peek(START)), path)
    text = in_utf8(stream, encoding_of(path))
    start = cast(io.BufferedReader, text).peek(START)
    _refuse(recognize_binary(start[:START]), path)
    if b"\n" not in start and start.rstrip(b"\r").count(b"\r") > 1:
        raise UserError(
            "its lines end with carriage returns alone, so that all of it would be one line",
            file=display_name(path),
            remedy="convert it first, for example by tr '\\r' '\\n'",
        )
    return text


def _refuse(content: Content | None, path: str | Path) -> None:
    """Raise an error for content that is no text."""
    if content is None:
        return
    remedy = content.remedy or "it is read where documents of text are; elsewhere, extract its text first"
    if content.pages == "html":
        remedy += ", and check whether a page was downloaded in place of the file"
    if content.pages and str(path) == "-":
        remedy = "save it to a file, and give that"
    raise UserError(f"is {content.name}, not text", file=display_name(path), remedy=remedy)


@contextmanager
def open_binary(path: str | Path) -> Iterator[io.BufferedReader]:
    """Open a file for reading, decompressed, whatever it contains.

    Args:
        path: as for `open_bytes`, but no standard input.

    Yields:
        The stream of its bytes.

    Raises:
        UserError: the file cannot be opened; or, while it is read, its archive is found to be damaged or to expand too
            much.
    """
    try:
        with on_disk(path) as file, _open(path.of(file) if isinstance(path, Section) else file) as stream:
            yield stream
    except (EOFError, DamagedError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise UserError(
            f"the archive is damaged ({error})", file=path, remedy="download or compress it again"
        ) from error
    except ExpansionError as error:
        raise expands_too_much(path) from error


def pages_of(path: str | Path) -> str:
    """Return the format of pages that a file has by its content (`content.PAGES`); "" if it has none, or is no file.

    What is named as HTML and begins with a tag is HTML, too: a fragment of a page has no other mark.
    """
    with on_disk(path, start=True) as file:
        if not Path(file).is_file():
            return ""
        try:
            start = _start(Path(file))
        except (UserError, OSError, zlib.error):  # which reading will raise again
            return ""
    content = recognize(start)
    is_fragment = content is None and _HTML.search(str(path)) and start.removeprefix(MARK).lstrip().startswith(b"<")
    return content.pages if content else "html" * bool(is_fragment)


def _start(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed, even if others are damaged."""
    if path.suffix.lower() == ".gz":
        with path.open("rb") as packed:
            return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed.read(_LINES), START)
    with open_binary(path) as stream:
        return stream.peek(START)[:START]


def _standard_input(encoding: str | None) -> BinaryIO:
    if sys.stdin is None:
        raise UserError("standard input is closed")
    return _in_utf8_once(sys.stdin.buffer, encoding)


@lru_cache(maxsize=1)
def _in_utf8_once(stream: BinaryIO, encoding: str | None) -> BinaryIO:
    """Return a stream as UTF-8, always the same one: what it has read in advance is not lost between two calls."""
    peekable = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, stream))
    return _as_text(peekable, "-" if encoding is None else EncodedPath("-", encoding))


def expands_too_much(path: str | Path, line: int | None = None) -> UserError:
    """Return the error for a compressed file that expands to more than `MAX_RATIO` times its size."""
    return UserError(
        f"the archive expands to more than {MAX_RATIO} times its size",
        file=path,
        line=line,
        remedy="decompress it first, if you trust it",
    )


def _open(path: str | Path) -> io.BufferedReader:
    """Open a plain or compressed file.

    Raises:
        UserError: it cannot be opened.
    """
    try:
        return _decompressed(path)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error


def _decompressed(path: str | Path) -> io.BufferedReader:
    match Path(path).suffix.lower():
        # The buffer avoids a call into the archive classes, which are written in Python, for each line.
        case ".gz":
            return io.BufferedReader(_Expanded(path, lambda packed: gzip.GzipFile(fileobj=packed)), _BLOCK)
        case ".bz2":
            return io.BufferedReader(_Expanded(path, partial(read_streams, begin=bz2.BZ2Decompressor)), _BLOCK)
        case ".xz":
            return io.BufferedReader(_Expanded(path, partial(read_streams, begin=lzma.LZMADecompressor)), _BLOCK)
        case ".zst":
            arrow = import_pyarrow(path)
            return io.BufferedReader(
                _Expanded(path, lambda packed: arrow.CompressedInputStream(packed, "zstd")), _BLOCK
            )
        case _:
            return io.BufferedReader(open_raw(path), _BLOCK)


def import_pyarrow(path: str | Path) -> ModuleType:
    """Return pyarrow; see `import_library`."""
    return import_library("pyarrow", "arrow", path)


def import_library(name: str, extra: str, path: str | Path) -> ModuleType:
    """Return a library that reads or writes a format.

    Args:
        name: its name.
        extra: the extra that installs it.
        path: the file that needs it.

    Raises:
        UserError: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(f"needs {name}", file=path, remedy=f"pip install 'unmask[{extra}]'") from error


def read_lines(path: str | Path) -> Iterator[tuple[int, bytes | None]]:
    r"""Read the lines of a file, holding little more than one in memory.

    Args:
        path: as for `open_bytes`.

    Yields:
        The number of the line, from 1, and the line without its `\n` or `\r\n` (the first one also without a byte-order
        mark), or None for a line of more than `MAX_DOCUMENT` bytes, which is never held in memory as a whole.

    Raises:
        UserError: as for `open_bytes`; if the archive expands too much, the message also names the line.
    """
    for number, text, fits in _blocks(path):
        lines: list[bytes | None] = [*text.split(b"\n")]
        if not fits:
            lines[0] = None
        yield from enumerate(lines, number)


def read_text_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    r"""Read the lines of a file as text.

    Yields:
        As `read_lines`; no line begins with a byte-order mark, as some do where files were put together.

    Raises:
        UserError: as for `read_lines`; or a line is not UTF-8 or is too long, and then the message names it.
    """
    name = display_name(path)
    for number, text, fits in _blocks(path):
        if not fits:
            raise UserError(f"the line is {TOO_LONG}", file=name, line=number)
        yield from enumerate(without_marks(decode_text(text, name, number)).split("\n"), number)


def without_marks(text: str) -> str:
    """Return a text without the byte-order marks at the beginning of its lines."""
    return _MARKS.sub("", text) if "\ufeff" in text else text


def decode_text(raw: bytes, name: str, line: int = 1) -> str:
    """Return the text of some lines of a file.

    Args:
        raw: the lines.
        name: name of the file, for messages.
        line: number of the first of them.

    Raises:
        UserError: a line is not UTF-8; the message names it.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line += raw.count(b"\n", 0, error.start)
        byte = error.start - raw.rfind(b"\n", 0, error.start)
        remedy = suggest(raw[error.start - byte + 1 :].split(b"\n", 1)[0])
        raise UserError(f"not UTF-8 (byte {byte} of the line)", file=name, line=line, remedy=remedy) from error


def _blocks(path: str | Path) -> Iterator[tuple[int, bytes, bool]]:
    r"""Read a file in blocks of whole lines; see `read_lines`.

    Yields:
        The number of the first line of the block, the lines joined by `\n`, and whether the first line has at most
        `MAX_DOCUMENT` bytes; if not, it may be incomplete. All other lines are shorter than a block.
    """
    block = min(_LINES, MAX_DOCUMENT)
    most = MAX_DOCUMENT + len(MARK) + 1  # 1: a carriage return
    begun: list[bytes] = []  # parts of a line whose end is not read yet; dropped if they are more than `most`
    number, size = 1 + (path.before if isinstance(path, Section) else 0), 0
    with open_bytes(path) as stream:
        read = cast(io.BufferedReader, stream).read1  # from a pipe, whatever there is
        try:
            while data := read(block):
                head, newline, unfinished = data.rpartition(b"\n")
                if newline:
                    text = b"".join((*begun, head)).replace(b"\r\n", b"\n").removesuffix(b"\r")
                    text = text.removeprefix(MARK) if number == 1 else text
                    yield number, text, size <= most and _first_length(text) <= MAX_DOCUMENT
                    number += text.count(b"\n") + 1
                    begun, size = [], 0
                begun.append(unfinished)
                size += len(unfinished)
                if size > most:
                    begun.clear()
        except ExpansionError as error:
            raise expands_too_much(path, number) from error
    if size:
        text = b"".join(begun).removeprefix(MARK if number == 1 else b"")
        yield number, text, size <= most and len(text) <= MAX_DOCUMENT


def _first_length(text: bytes) -> int:
    end = text.find(b"\n")
    return len(text) if end < 0 else end


def require_regular(path: Path) -> None:
    """Raise a UserError if there is something other than a file: reading a pipe could block forever."""
    if path.exists() and not path.is_file():
        raise UserError("is not a regular file", file=path)


def read_whole(path: Path) -> bytes:
    """Read a file that is a single JSON value, or as small, such as a vocabulary.

    Raises:
        UserError: it is no regular file, or has more than `MAX_JSON` bytes.
        OSError: it cannot be read.
    """
    require_regular(path)
    with path.open("rb") as file:
        content = read_at_most(file, MAX_JSON + 1)
    if len(content) > MAX_JSON:
        raise UserError(f"has more than {MAX_JSON:,} bytes", file=path)
    return content


def read_at_most(file: BinaryIO, most: int) -> bytes:
    """Read up to `most` bytes; unlike `file.read`, allocate no more than there are."""
    content = bytearray()
    while len(content) < most and (block := file.read(min(_BLOCK, most - len(content)))):
        content += block
    return bytes(content)


def read_text_whole(path: str | Path) -> bytes:
    """Read a file of text, or of a single JSON value, decompressed and in UTF-8.

    Args:
        path: as for `open_bytes`.

    Raises:
        UserError: as for `open_bytes`; or it has more than `MAX_JSON` bytes.
    """
    with open_bytes(path) as stream:
        content = read_at_most(stream, MAX_JSON + 1)
    if len(content) > MAX_JSON:
        what = f"has more than {MAX_JSON:,} bytes"
        raise UserError(what, file=display_name(path), remedy="split it into several files")
    return content


def read_text_start(path: str | Path, size: int) -> bytes:
    """Return the first bytes of a file of text, without a byte-order mark and spaces before it; see `open_bytes`."""
    with open_bytes(path) as stream:
        return stream.read(size).removeprefix(MARK).lstrip()


def decode_value(line: str | bytes, name: str, number: int) -> Any:
    """Decode a line of JSON values.

    Args:
        line: a line of the file.
        name: name of the file, for messages.
        number: number of the line, from 1.

    Raises:
        UserError: the line is not valid JSON, or has a key twice.
    """
    try:
        value = msgspec.json.decode(line)
        check_keys(line, value)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UserError(f"broken JSON ({error})", file=name, line=number) from error
    return value


def decode_line(line: str | bytes, name: str, number: int) -> dict[str, Any]:
    """Decode a line of JSON Lines, as `decode_value`.

    Raises:
        UserError: see there; or the value is not an object.
    """
    record = decode_value(line, name, number)
    if not isinstance(record, dict):
        raise UserError("not a JSON object", file=name, line=number)
    return record


def files_of(paths: Iterable[str | Path], patterns: Sequence[str]) -> Iterator[str | Path]:
    """Yield files; a directory stands for the files in it whose names match one of some patterns, sorted.

    Raises:
        UserError: there are none.
    """
    for path in paths:
        if not Path(path).is_dir():
            yield path
            continue
        files = sorted(file for pattern in patterns for file in Path(path).rglob(pattern))
        if not files:
            kinds = ", ".join(pattern.removeprefix("*") for pattern in patterns)
            raise UserError(
                f"there are no {kinds} files in the directory", file=path, remedy="unpack the data set there"
            )
        yield from (with_encoding(file, encoding_of(path)) for file in files)


@contextmanager
def on_disk(path: str | Path, *, start: bool = False) -> Iterator[str | Path]:
    """Yield the path of a file on this machine: the path itself, or that of a copy of a URL (support/stores.py).

    Args:
        path: a path, or a URL.
        start: whether of a URL only the start is needed, by which the content is recognized.

    Raises:
        UserError: there is no file at the URL, it may not be read, or is too large for the cache.
        UnmaskError: the store fails, or cuts the file off.
    """
    if not (address := address_of(path)):
        yield path
        return
    from unmask.support.stores import copy_on_disk  # which no file on this machine needs

    with copy_on_disk(Url(address), start=start) as copy:
        yield copy
