"""Sizes of Arrow files, known before their values are made: of compressed buffers, and of values as Python objects.

Of compressed buffers, before any of them is decompressed. Input: an Arrow file or stream. Output: bytes of its buffers
after decompression, as they declare them. pyarrow allocates what a whole message declares (a batch of rows, or of a
dictionary): a kilobyte can declare gigabytes. Arrow columnar format, "Serialization and Interprocess Communication
(IPC)": of the flatbuffers of `Message.fbs` and `File.fbs`, only the fields on the way to the buffers are read. pyarrow
verifies all of them, before it decompresses; in a message that it refuses, numbers without meaning may be read here.

Of values, before they are Python objects. Input: arrays and batches of pyarrow, validated. Output: bytes of each row:
the bytes of texts, and 8 for a number. An array can be much smaller than its values: in an array of categories, and in
a view, many rows name the same text.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

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
NUMBER = 8
"""Bytes of a number or of a truth value."""


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


def sizes_of_rows(batch: Any) -> np.ndarray:
    """Return the bytes of each row of a batch, (rows,) float64."""
    return sum((sizes_of_values(column) for column in batch.columns), np.zeros(batch.num_rows))


def sizes_of_values(array: Any) -> np.ndarray:
    """Return the bytes of each value of an array, (rows,) float64: texts, numbers, categories, lists, structures."""
    from pyarrow import compute, types

    kind = array.type
    if types.is_dictionary(kind):
        sizes = np.append(sizes_of_values(array.dictionary), 0.0)
        return sizes[compute.fill_null(array.indices, len(array.dictionary)).to_numpy(zero_copy_only=False)]
    if types.is_list(kind) or types.is_large_list(kind):
        ends = np.cumsum(compute.fill_null(compute.list_value_length(array), 0).to_numpy(zero_copy_only=False))
        totals = np.concatenate([[0.0], np.cumsum(NUMBER + sizes_of_values(array.flatten()))])
        return np.diff(totals[ends], prepend=0.0)
    if types.is_struct(kind):
        return sum((sizes_of_values(field) for field in array.flatten()), np.zeros(len(array)))
    if types.is_string_view(kind):  # views of 16 bytes, which begin with the length
        lengths = np.frombuffer(array.buffers()[1] or b"", np.int32).reshape(-1, 4)[:, 0]
        lengths = lengths[array.offset : array.offset + len(array)].astype(np.float64)
        return np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0.0)
    if types.is_string(kind) or types.is_large_string(kind):
        return compute.fill_null(compute.binary_length(array), 0).to_numpy(zero_copy_only=False).astype(np.float64)
    return np.full(len(array), float(NUMBER))


def split_rows(sizes: np.ndarray, most: int, total: float) -> Iterator[tuple[int, int]]:
    """Yield start and end of rows that are converted together: at most `most`, of `total` bytes unless it is one row.

    Args:
        sizes: the bytes of each row.
        most: maximum number of rows.
        total: maximum number of bytes.
    """
    sums, start = np.cumsum(sizes), 0
    while start < len(sizes):
        before = sums[start - 1] if start else 0.0
        stop = int(np.searchsorted(sums, before + total, side="right"))
        stop = min(max(stop, start + 1), start + most)
        yield start, stop
        start = stop


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
