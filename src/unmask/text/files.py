"""Opening of raw files, and reading of their lines in bounded memory.

Input: the path of a plain, `.gz` or `.xz` file, or `-` for standard input. Output: bytes, or numbered lines of bytes.
"""

from __future__ import annotations

import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from unmask.errors import UserError

MAX_DOCUMENT = 10_000_000
"""Maximum size of a document, and so of a line, in bytes."""

_BLOCK = 1 << 20


def display_name(path: str | Path) -> str:
    """Return the name of a file for messages."""
    return "standard input" if str(path) == "-" else str(path)


@contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed.

    Args:
        path: a plain file, one that ends in `.gz` or `.xz`, or `-` for standard input (which is left open).

    Yields:
        The stream of its bytes.

    Raises:
        UserError: the file cannot be opened, or its archive is found to be damaged while it is read.
    """
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = _open(Path(path))
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=path) from error
    with stream:
        try:
            yield stream
        except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
            raise UserError(
                f"the archive is damaged ({error})", file=path, remedy="download or compress it again"
            ) from error


def _open(path: Path) -> BinaryIO:
    match path.suffix.lower():
        # The buffer avoids a call into the archive classes, which are written in Python, for each line.
        case ".gz":
            return io.BufferedReader(cast(io.RawIOBase, gzip.open(path)), _BLOCK)
        case ".xz":
            return io.BufferedReader(cast(io.RawIOBase, lzma.open(path)), _BLOCK)
        case _:
            return path.open("rb", buffering=_BLOCK)


def read_lines(path: str | Path) -> Iterator[tuple[int, bytes | None]]:
    r"""Read the lines of a file, holding at most one in memory.

    Args:
        path: as for `open_bytes`.

    Yields:
        The number of the line, from 1, and the line without its `\n` or `\r\n` (the first one also without a byte-order
        mark), or None for a line of more than `MAX_DOCUMENT` bytes, which is never held in memory as a whole.

    Raises:
        UserError: as for `open_bytes`.
    """
    with open_bytes(path) as stream:
        number = 0
        while raw := stream.readline(MAX_DOCUMENT + 2):  # 2: the longest line ending
            number += 1
            if number == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            ended = raw.endswith(b"\n")
            line = raw.removesuffix(b"\n").removesuffix(b"\r") if ended else raw
            if len(line) <= MAX_DOCUMENT:
                yield number, line
                continue
            while not ended:
                raw = stream.readline(_BLOCK)
                ended = not raw or raw.endswith(b"\n")
            del raw, line
            yield number, None


def decode_object(line: str | bytes, name: str, number: int) -> dict[str, Any]:
    """Decode a line of JSON Lines.

    Args:
        line: a line of the file.
        name: name of the file, for messages.
        number: number of the line, from 1.

    Raises:
        UserError: the line is not valid JSON, or not an object.
    """
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"broken JSON ({error})", file=name, line=number) from error
    if not isinstance(record, dict):
        raise UserError("not a JSON object", file=name, line=number)
    return record


def as_paths(paths: str | Path | Sequence[str | Path]) -> list[str | Path]:
    """Return a path or a sequence of paths as a list."""
    return [paths] if isinstance(paths, str | Path) else [*paths]
