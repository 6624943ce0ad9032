"""Records of web archives, WARC and ARC: read one by one, whatever is damaged between them.

Input: the bytes of a file, plain or compressed by gzip, of which each record is a member as a rule. Output: the header
and the block of each record, or a `Damage` that says what is wrong. Libraries stop at the first damaged member or skip
it without a word: here it is named, and reading goes on at the next record that can be found.

    gzip    a member is cut off or damaged: reading goes on at the next member that begins with a record
    length  is wrong: the block is searched for the next record, so that none is swallowed
    size    a block of more than `MAX_DOCUMENT` bytes is searched for the next record, too, in bounded memory; a member
            that expands to more than `MAX_RATIO` times its size is not read on

What is read from a place on does not depend on what is before it, nor on blocks: a member, or a record of a plain
file, is read in the same way from wherever reading begins. So a large file can be read in sections.

ISO 28500:2017 (WARC 1.1), of which all versions since 0.17 are read; ARC 1 and 2 (Burner and Kahle 1996).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from typing import BinaryIO, NamedTuple

from unmask.data.text.files import FREE, MAX_DOCUMENT, MAX_RATIO, TOO_LONG

_BLOCK = 1 << 16
_MAX_HEADER = 1 << 16
_BEHIND = 1 << 17
"""Bytes of a member that are searched for others: one block of a damaged member may swallow 64 KB of these."""
_START = 1 << 12
"""Bytes by which the start of a member is judged."""
_MEMBER = b"\x1f\x8b\x08"
_WARC = re.compile(rb"^WARC/\d+\.\d+\r?\n", re.MULTILINE)
_ARC = re.compile(rb"^(\w[\w+.-]*:\S*) \S+ \d{8,14} (\S*)(?: [^\r\n]*)? (\d+)\r?\n", re.MULTILINE)
_STARTS = {"warc": _WARC, "arc": _ARC}


class Record(NamedTuple):
    """A record.

    Attributes:
        number: its number in the file, from 1.
        kind: its WARC-Type; of an ARC file "response", or "warcinfo" for its first record.
        url: the address of the page.
        type: the media type of the block.
        block: its content.
    """

    number: int
    kind: str
    url: str
    type: str
    block: bytes


class Damage(NamedTuple):
    """A record that cannot be read: its number, and why."""

    number: int
    reason: str


class _Header(NamedTuple):
    kind: str
    url: str
    type: str
    length: int


class _Stream:
    """The content of a file, in segments that end where something is damaged or where a member begins with a record.

    Args:
        file: the file.
        starts: matches the start of a record.
        start: where reading begins.
        stop: reading ends at the first record from there on; None: at the end of the file.

    Attributes:
        fault: what ended the segment; "" if it is a new record or the end of the file.
        is_packed: whether the file is compressed by gzip.
        stopped: where the first record from `stop` on begins; None: it was not reached, or there is none.
    """

    def __init__(self, file: BinaryIO, starts: re.Pattern[bytes], start: int = 0, stop: int | None = None) -> None:
        self._file, self.starts, self._stop = file, starts, stop
        self._content = bytearray()
        self._packed = file.read(_BLOCK)
        self.is_packed = self._packed.startswith(_MEMBER[:2])
        if start:
            file.seek(start)
            self._packed = file.read(_BLOCK)
        self._end = start + len(self._packed)  # of what was read of the file
        self._inflater: zlib._Decompress | None = None
        self._member = 0  # where the member begins
        self._due = 0  # bytes that the inflater is given next, packed
        self._read = self._size = 0  # bytes of the member, packed and unpacked
        self._behind = b""  # the last of them, packed
        self._ahead = b""  # what begins the next segment
        self._is_lost = False  # a member that begins with a record is to be found
        self.fault = ""
        self.stopped: int | None = None

    @property
    def place(self) -> int:
        """Where the content begins, in a file that is not compressed."""
        return self._end - len(self._packed) - len(self._content)

    def seek_record(self) -> int | None:
        """Return where the next record begins, at the earliest after the first byte; None: there is none."""
        if self.is_packed:
            self._packed, self._is_lost = self._packed[1:], True
            return self._member if self._begin_member() else None
        self.find()
        return self.place if self.peek(1) else None

    def stops(self) -> bool:
        """Return whether reading ends at the record that begins here, in a file that is not compressed."""
        if not self.is_packed and self._stop is not None and self.place >= self._stop:
            self.stopped = self.place
        return self.stopped is not None

    def advance(self) -> bool:
        """Begin the next segment if this one has ended; return whether there is more, content or a fault."""
        if not self._content:
            self.fault = ""
            if not self._ahead:
                self._fill()
            if not self._content:
                self._content += self._ahead
                self._ahead = b""
        return bool(self._content or self.fault)

    def peek(self, count: int) -> bytes:
        """Return up to `count` bytes, fewer at the end of the segment."""
        while len(self._content) < count and self._fill():
            pass
        return bytes(self._content[:count])

    def take(self, count: int) -> bytes:
        """Return up to `count` bytes, and go on after them."""
        taken = self.peek(count)
        del self._content[: len(taken)]
        return taken

    def skip(self, count: int) -> int:
        """Go on after up to `count` bytes, which are not kept; return how many there were."""
        skipped = 0
        while skipped < count and self.peek(1):
            step = min(count - skipped, len(self._content))
            del self._content[:step]
            skipped += step
        return skipped

    def unread(self, content: bytes) -> None:
        """Go back."""
        self._content[:0] = content

    def find(self) -> None:
        """Go on at the next start of a record in this segment, after the first byte, or at the end of the segment."""
        self.peek(1)
        while True:
            if match := self.starts.search(self._content, 1):
                del self._content[: match.start()]
                return
            end = self._content.rfind(b"\n")  # a line may be the start of a header
            del self._content[: max(0, end, len(self._content) - _MAX_HEADER)]
            if not self._fill():
                self._content.clear()
                return

    def _fill(self) -> bool:
        """Read on; return False at the end of the segment."""
        if self.fault or self._ahead or self.stopped is not None:
            return False
        if self.is_packed:
            content = self._inflated()
        elif content := self._packed:
            self._packed = b""
        else:
            content = self._file.read(_BLOCK)
            self._end += len(content)
        self._content += content
        return bool(content)

    def _inflated(self) -> bytes:
        """Return the next decompressed bytes; none at the end of the segment."""
        while True:
            begins = self._inflater is None
            if begins and not self._begin_member():
                return b""
            content = self._inflate()
            if begins and self.starts.match(content):
                if self._stop is not None and self._member >= self._stop:
                    self.stopped = self._member
                else:
                    self._ahead = content
                return b""
            if content or self.fault:
                return content

    def _inflate(self) -> bytes:
        """Return the next decompressed bytes of a member, if what was read gives any."""
        assert self._inflater is not None
        while len(self._packed) < self._due and self._read_on():
            pass
        given = self._packed[: self._due]
        if not given:
            self._packed = self._behind[1:]  # the member itself begins at 0, if it does
            return self._lose("the file is cut off")
        try:
            content = self._inflater.decompress(given, _BLOCK)
        except zlib.error as error:
            self._packed = (self._behind + self._packed)[1:]
            return self._lose(f"it cannot be decompressed ({error})")
        rest = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
        read = len(given) - len(rest)
        self._behind = (self._behind + given[:read])[-_BEHIND:]
        self._due = self._due - read or _BLOCK
        self._read += read
        self._size += len(content)
        self._packed = self._packed[read:]
        if self._inflater.eof:
            self._inflater = None
        if self._size > max(FREE, MAX_RATIO * self._read):
            return self._lose(f"it expands to more than {MAX_RATIO} times its size")
        return content

    def _lose(self, fault: str) -> bytes:
        """End the segment: the next one is a member that begins with a record."""
        self.fault, self._inflater, self._is_lost = fault, None, True
        return b""

    def _read_on(self) -> bool:
        """Read more of the file; return False at its end."""
        packed = self._file.read(_BLOCK)
        self._packed += packed
        self._end += len(packed)
        return bool(packed)

    def _begin_member(self) -> bool:
        """Go to the next member; return False if there is none, or if something else follows."""
        while True:
            while len(self._packed) < _START and self._read_on():
                pass
            if not self._is_lost:
                self._packed = self._packed.lstrip(b"\0")  # padding
            place = self._packed.find(_MEMBER)
            if not self._is_lost and place != 0:
                if self._packed:
                    self._lose("what follows is not compressed by gzip")
                    return False
            elif place >= 0:
                self._packed = self._packed[place:]
                while len(self._packed) < _START and self._read_on():
                    pass
                if not self._is_lost or self.starts.match(_beginning(self._packed)):
                    self._inflater, self._is_lost = zlib.decompressobj(31), False
                    self._member, self._due = self._end - len(self._packed), _BLOCK
                    self._read, self._size, self._behind = 0, 0, b""
                    return True
                self._packed = self._packed[1:]
                continue
            else:
                self._packed = self._packed[-len(_MEMBER) + 1 :]
            if not self._read_on():
                return False


def _beginning(packed: bytes) -> bytes:
    """Return the first decompressed bytes of a member; none if it is damaged."""
    try:
        return zlib.decompressobj(31).decompress(packed[:_START], _START)
    except zlib.error:
        return b""


def read_records(
    file: BinaryIO, form: str, start: int = 0, stop: int | None = None, before: int = 0
) -> Iterator[Record | Damage]:
    """Read the records of a file.

    Args:
        file: the file; compressed by gzip, or not.
        form: "warc" or "arc".
        start: the place in the file, in bytes, of the first record that is read (of a member that begins with one, if
            they are compressed).
        stop: the place from which on the next record ends reading; None: all are read.
        before: number of records before the first.
    """
    return _read_records(_Stream(file, _STARTS[form], start, stop), before)


def find_record(file: BinaryIO, form: str, start: int) -> int | None:
    """Return the first place from `start` on where a record seems to begin; None: there is none.

    What is stored in a record may look like one. Reading from where one begins tells (`count_records`).

    Args:
        file: the file; compressed by gzip, or not.
        form: "warc" or "arc".
        start: a place in the file, after 0.
    """
    return _Stream(file, _STARTS[form], start - 1).seek_record()


def count_records(file: BinaryIO, form: str, start: int, stop: int | None) -> tuple[int, int | None]:
    """Return the number of records, damaged ones too, from one place to another, and where the next one begins.

    Args:
        file: the file; compressed by gzip, or not.
        form: "warc" or "arc".
        start: where a record begins.
        stop: where the next one is sought.
    """
    stream = _Stream(file, _STARTS[form], start, stop)
    count = sum(1 for _ in _read_records(stream, 0))
    return count, stream.stopped


def _read_records(stream: _Stream, number: int) -> Iterator[Record | Damage]:
    starts = stream.starts
    read_header = _arc_header if starts is _ARC else _warc_header
    while stream.advance():
        while stream.peek(1) in (b"\r", b"\n"):
            stream.skip(1)
        if not stream.peek(1):
            if stream.fault:
                number += 1
                yield Damage(number, stream.fault)
            continue
        if stream.stops():
            return
        number += 1
        header = read_header(stream) if starts.match(stream.peek(_MAX_HEADER if starts is _ARC else 32)) else None
        if header is None:
            stream.find()
            yield Damage(number, stream.fault or "the header of a record is damaged")
        elif header.length > MAX_DOCUMENT:
            stream.find()
            yield Damage(number, stream.fault or TOO_LONG)
        else:
            block = stream.take(header.length)
            if len(block) == header.length and _ends(stream):
                yield Record(number, *header[:3], block)
                continue
            cut = f"it ends before the {header.length:,} bytes that its header declares"
            fault = stream.fault or (cut if len(block) < header.length else "its length is wrong")
            stream.unread(block)
            stream.find()
            yield Damage(number, fault)


def _ends(stream: _Stream) -> bool:
    """Return whether a record ends here: the mark of the end follows, another record, or nothing."""
    start, starts = stream.peek(8), stream.starts
    if starts is _WARC and start.startswith(b"\r\n\r\n"):
        return True
    rest = start.lstrip(b"\r\n")
    if not rest:
        return not stream.fault
    blank = len(start) - len(rest)
    return starts.match(stream.peek(blank + (_MAX_HEADER if starts is _ARC else 32)), blank) is not None


def _warc_header(stream: _Stream) -> _Header | None:
    """Read the header of a WARC record; None: it is damaged, and nothing was read."""
    start = stream.peek(4096)
    if b"\r\n\r\n" not in start and b"\n\n" not in start:
        start = stream.peek(_MAX_HEADER)
    match = re.search(rb"\r?\n\r?\n", start)
    if match is None:
        return None
    fields: dict[str, str] = {}
    for line in start[: match.start()].decode("utf-8", "replace").splitlines()[1:]:
        name, colon, value = line.partition(":")
        if colon:
            fields[name.strip().lower()] = value.strip()
    length = _length(fields)
    if length is None:
        return None
    stream.skip(match.end())
    url = fields.get("warc-target-uri", "").strip("<>")
    return _Header(fields.get("warc-type", "").lower(), url, fields.get("content-type", ""), length)


def _length(fields: Mapping[str, str]) -> int | None:
    text = fields.get("content-length", "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else None


def _arc_header(stream: _Stream) -> _Header | None:
    """Read the header of an ARC record; None: it is damaged, and nothing was read."""
    match = _ARC.match(stream.peek(_MAX_HEADER))
    if match is None or len(match[3]) > 18:
        return None
    stream.skip(match.end())
    url = match[1].decode("utf-8", "replace")
    kind = "warcinfo" if url.startswith("filedesc:") else "response"
    return _Header(kind, url, match[2].decode("utf-8", "replace"), int(match[3]))
