"""Files of bzip2 and xz, whose streams may be several, one after the other, as parallel programs write them.

Input: a file. Output: its decompressed bytes. `bz2` and `lzma` take what follows the first stream for garbage if it is
no stream, and end there without a word: one damaged byte loses all that follows. Here it is an error; zeros between and
after streams are padding.
"""

from __future__ import annotations

import bz2
import io
import lzma
from collections.abc import Callable
from typing import Any, BinaryIO

_BLOCK = 1 << 16
_Decompressor = bz2.BZ2Decompressor | lzma.LZMADecompressor


class _Streams(io.RawIOBase):
    def __init__(self, packed: BinaryIO, begin: Callable[[], _Decompressor]) -> None:
        self._packed, self._begin = packed, begin
        self._inflater, self._given = begin(), b""
        self._has_ended = False  # a stream, after which none has begun

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with memoryview(buffer) as view:
            count = 0
            while count < len(view) and self._begins():
                content = self._inflater.decompress(self._given, len(view) - count)
                self._given = b""
                view[count : count + len(content)] = content
                count += len(content)
            return count

    def _begins(self) -> bool:
        """Return whether there is more, of which some is given to the decompressor next."""
        if self._inflater.eof:
            self._given, self._inflater, self._has_ended = self._inflater.unused_data, self._begin(), True
        while self._inflater.needs_input:
            if self._has_ended:
                self._given = self._given.lstrip(b"\0")
            if self._given:
                break
            self._given = self._packed.read(_BLOCK)
            if not self._given and self._has_ended:
                return False
            if not self._given:
                raise EOFError("it ends before the end of a stream")
        self._has_ended = False
        return True


def read_streams(packed: BinaryIO, begin: Callable[[], _Decompressor]) -> io.RawIOBase:
    """Return the decompressed bytes of a file of bzip2 or xz.

    Args:
        packed: the file, which stays open.
        begin: returns what decompresses a stream, `bz2.BZ2Decompressor` or `lzma.LZMADecompressor`.

    Raises:
        OSError, lzma.LZMAError: while it is read: it is damaged.
        EOFError: it is cut off.
    """
    return _Streams(packed, begin)
