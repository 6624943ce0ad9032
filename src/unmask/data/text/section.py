"""Sections of large files: consecutive parts that begin and end with records, so that tasks can divide a file.

A `Section` is a path, and everywhere a path like any other, except where records are read: there, those of the section
alone, with the numbers that they have in the whole file. dividing.py finds sections.
"""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

from unmask.support.urls import Url, address_of

_BLOCK = 1 << 20


class Section(str):
    """A part of a file.

    Attributes:
        start, stop: its bounds in bytes, as the file is stored; of Parquet, the first bytes of row groups.
        before: number of records, or of lines, that are before it in the file.
        is_last: whether the file ends with it.
        address: the address of the file, if it is at a URL.
    """

    start: int
    stop: int
    before: int
    is_last: bool
    address: str

    def __new__(cls, path: str | Path, start: int, stop: int, before: int, *, is_last: bool) -> Section:
        """Return the section of a file, a path or a `Url`."""
        section = super().__new__(cls, path)
        section.start, section.stop, section.before, section.is_last = start, stop, before, is_last
        section.address = address_of(path)
        return section

    @property
    def whole(self) -> str | Path:
        """The file."""
        return Url(self.address) if self.address else Path(self)

    def of(self, copy: str | Path) -> Section:
        """Return the same section of a copy of the file."""
        return Section(copy, self.start, self.stop, self.before, is_last=self.is_last)


class _Part(io.RawIOBase):
    """The bytes of a file between two places, which it reads as if they were all."""

    def __init__(self, file: io.FileIO, start: int, stop: int) -> None:
        self._file, self._start, self._size, self._left = file, start, max(0, stop - start), 0
        self.seek(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_CUR:
            offset += self.tell()
        elif whence == os.SEEK_END:
            offset += self._size
        place = max(0, offset)
        self._file.seek(self._start + place)
        self._left = self._size - place
        return place

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer) as view:
            count = self._file.readinto(view[: self._left]) if self._left > 0 else 0
        self._left -= count
        return count

    def tell(self) -> int:
        return self._size - self._left

    def close(self) -> None:
        self._file.close()
        super().close()


def open_raw(path: str | Path) -> io.RawIOBase:
    """Open a file, or a section of it, as it is stored."""
    file = io.FileIO(path)
    return _Part(file, path.start, path.stop) if isinstance(path, Section) else file


def open_part(path: str | Path, start: int, stop: int) -> io.BufferedReader:
    """Open the bytes of a file between two places, as it is stored."""
    return io.BufferedReader(_Part(io.FileIO(path), start, stop), _BLOCK)


def fingerprint_bytes(path: Path, start: int, stop: int) -> str:
    """Return the sha256 of a part of a file."""
    with open_part(path, start, stop) as part:
        return hashlib.file_digest(part, "sha256").hexdigest()
