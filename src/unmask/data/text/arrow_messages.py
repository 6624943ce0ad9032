"""What the compressed buffers of an Arrow file expand to, read before any of them is decompressed.

Input: an Arrow file or stream. Output: bytes of its buffers after decompression, as they declare them. pyarrow
allocates what a whole message declares (a batch of rows, or of a dictionary): a kilobyte can declare gigabytes.

Arrow columnar format, "Serialization and Interprocess Communication (IPC)": of the flatbuffers of `Message.fbs` and
`File.fbs`, only the fields on the way to the buffers are read. pyarrow verifies all of them, before it decompresses; in
a message that it refuses, numbers without meaning may be read here.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

END = b"ARROW1"
"""Last bytes of a file; a stream has no such end."""
CONTINUED = -1
"""Number before the length of a message; streams of old versions lack it."""
OLD_COMPRESSION = b"ARROW:experimental_compression"
"""Key in the metadata of a message by which version 0.17 declared compression."""
DICTIONARY, ROWS = 2, 3
"""Types of messages with buffers."""

BLOCK = np.dtype([("start", "<i8"), ("metadata", "<i4"), ("", "<i4"), ("body", "<i8")])
BUFFER = np.dtype([("start", "<i8"), ("length", "<i8")])


def decompressed_size(path: Path, *, in_blocks: bool) -> int:
    """Return the bytes of the compressed buffers of a file after decompression, dictionaries included.

    Args:
        path: the file.
        in_blocks: whether it is a file, whose end says where its messages are, or a stream of messages.

    Raises:
        ValueError: its messages cannot be read.
    """
    with path.open("rb") as file:
        try:
            messages = _messages_of_file(file) if in_blocks else _messages_of_stream(file)
            return sum(_buffer_size(file, body + start) for message, body in messages for start in _buffers(message))
        except (struct.error, IndexError, ValueError, OverflowError, OSError) as error:
            raise ValueError(f"its messages cannot be read: {error}") from error


def _messages_of_file(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield the metadata of each message that the footer names, and where its body begins."""
    file.seek(-len(END) - 4, os.SEEK_END)
    (length,) = struct.unpack("<i", file.read(4))
    file.seek(-len(END) - 4 - length, os.SEEK_END)
    footer = _exactly(file, length)
    table = _target(footer, 0)
    for field in (2, 3):  # dictionaries, record batches
        for block in _vector(footer, _field(footer, table, field), BLOCK):
            file.seek(block["start"])
            yield _metadata(file), int(block["start"]) + int(block["metadata"])


def _messages_of_stream(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield the metadata of each message, and where its body begins."""
    while message := _metadata(file):
        body = file.tell()
        yield message, body
        field = _field(message, _target(message, 0), 3)
        length = struct.unpack_from("<q", message, field)[0] if field else 0
        if length < 0:  # the same message would be read again, without end
            raise ValueError("a body has a negative length")
        file.seek(body + length)


def _metadata(file: BinaryIO) -> bytes:
    """Return the metadata of the message at the current position; empty: a stream ends there."""
    length = struct.unpack("<i", file.read(4) or bytes(4))[0]
    if length == CONTINUED:
        length = struct.unpack("<i", file.read(4))[0]
    return _exactly(file, length)


def _exactly(file: BinaryIO, length: int) -> bytes:
    if length > os.fstat(file.fileno()).st_size - file.tell():
        raise ValueError("the file is truncated")
    content = file.read(length)
    if len(content) != length:
        raise ValueError("the file is truncated")
    return content


def _buffers(message: bytes) -> list[int]:
    """Return where, in the body of a message, compressed buffers begin."""
    table = _target(message, 0)
    kind, batch = _field(message, table, 1), _field(message, table, 2)
    if not kind or not batch or message[kind] not in (DICTIONARY, ROWS):
        return []
    batch = _target(message, batch)
    if message[kind] == DICTIONARY:
        batch = _target(message, _field(message, batch, 1))
    if not _field(message, batch, 3) and OLD_COMPRESSION not in message:
        return []
    buffers = _vector(message, _field(message, batch, 2), BUFFER)
    return buffers["start"][buffers["length"] > 0].tolist()


def _buffer_size(file: BinaryIO, start: int) -> int:
    """Return the size that a compressed buffer declares; 0 if it is stored as it is, which -1 says."""
    file.seek(start)
    return max(0, struct.unpack("<q", file.read(8))[0])


def _target(data: bytes, place: int) -> int:
    """Return where a reference in a flatbuffer points."""
    return place + int(struct.unpack_from("<I", data, place)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Return where a field of a table in a flatbuffer is; 0: it has its default."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    slot = 4 + 2 * number
    if slot >= struct.unpack_from("<H", data, fields)[0]:
        return 0
    offset = struct.unpack_from("<H", data, fields + slot)[0]
    return table + offset if offset else 0


def _vector(data: bytes, place: int, dtype: np.dtype) -> np.ndarray:
    """Return the structures of a vector in a flatbuffer; none, if the field has its default."""
    if not place:
        return np.zeros(0, dtype)
    start = _target(data, place)
    return np.frombuffer(data, dtype, struct.unpack_from("<I", data, start)[0], start + 4)
