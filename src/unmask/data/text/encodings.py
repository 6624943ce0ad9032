"""Encodings of text other than UTF-8: those that are named, or declared by a byte-order mark, are read as UTF-8.

Input: the bytes of a file, and the name of an encoding, if it is known, which is part of the path (`EncodedPath`).
Output: the same text in UTF-8; for a line that is not UTF-8, the encodings in which it could be, with what it says in
them. Nothing is guessed: many sequences of bytes are text in several encodings.
"""

from __future__ import annotations

import codecs
import io
import unicodedata
from pathlib import Path
from typing import Any, BinaryIO

from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.support.urls import address_of

MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # first: it begins with that of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
"""Byte-order marks, each with its encoding."""
UTF8 = ("utf-8", "utf-8-sig")
"""Names of UTF-8, without and with a mark."""
SCRIPTS = {
    "cp1252": ("LATIN",),
    "cp1250": ("LATIN",),
    "cp1251": ("CYRILLIC",),
    "koi8-r": ("CYRILLIC",),
    "cp1253": ("GREEK",),
    "cp1254": ("LATIN",),
    "cp1255": ("HEBREW",),
    "cp1256": ("ARABIC",),
    "cp1257": ("LATIN",),
    "cp874": ("THAI",),
    "shift_jis": ("HIRAGANA", "KATAKANA", "CJK"),
    "euc-jp": ("HIRAGANA", "KATAKANA", "CJK"),
    "gb18030": ("CJK",),
    "big5": ("CJK",),
    "euc-kr": ("HANGUL",),
}
"""Encodings to suggest, each with the scripts of the letters that it is used for."""
SIGNS = "µªº"
"""Letters to Unicode that are signs in text of any script, as in 5 µg and 1º, though `unicodedata` names no script."""
SUGGESTED = 6
_EXCERPT = 24
_BLOCK = 1 << 16


class EncodingError(Exception):
    """Raised while a file is read that is not in the encoding that its path or its byte-order mark names."""

    def __init__(self, problem: str, line: int | None, remedy: str) -> None:
        super().__init__(problem)
        self.line, self.remedy = line, remedy


class EncodedPath(str):
    """The path of a file with the name of the encoding of its text; everywhere else it is a path like any other."""

    def __new__(cls, path: str | Path, encoding: str = "utf-8") -> EncodedPath:
        """Return the path.

        Args:
            path: a file; `-` is standard input.
            encoding: name of an encoding that Python knows.

        Raises:
            UserError: the encoding is unknown.
        """
        check_encoding(encoding)
        encoded = super().__new__(cls, path)
        encoded.encoding, encoded.address = encoding, address_of(path)
        return encoded

    encoding: str
    address: str


def with_encoding(path: str | Path, encoding: str | None) -> str | Path:
    """Return a path with the name of the encoding of its text, if there is one."""
    return path if encoding is None else EncodedPath(path, encoding)


def encoding_of(path: object) -> str | None:
    """Return the encoding that is part of a path; None: the file is UTF-8, unless it has a byte-order mark."""
    return path.encoding if isinstance(path, EncodedPath) else None


def check_encoding(name: str) -> None:
    """Raise a UserError if a name is not that of an encoding of text."""
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=name)
    except (LookupError, ValueError) as error:  # ValueError: of a NUL
        known = ", ".join(SCRIPTS)
        raise UserError(
            f"{argument('encoding', name)}: no such encoding of text", remedy=f"pass one such as {known}"
        ) from error


def refuse_encoding(path: object) -> None:
    """Raise a UserError if an encoding is part of the path of a file whose format says how its text is encoded."""
    if encoding := encoding_of(path):
        raise UserError(
            f"{argument('encoding', encoding)} has no effect: this format says how its text is encoded",
            file=str(path),
            remedy="omit it, and save other files in UTF-8",
        )


class _InUtf8(io.RawIOBase):
    """The text of a file in another encoding, as UTF-8.

    Args:
        stream: its bytes.
        encoding: the encoding.
        declared: whether a byte-order mark declares it.
    """

    def __init__(self, stream: io.BufferedReader, encoding: str, *, declared: bool) -> None:
        self._stream, self._encoding, self._declared = stream, encoding, declared
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._encoded, self._line, self._size = b"", 1, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._encoded:
            block = self._stream.read1(_BLOCK)  # from a pipe, whatever there is
            self._size += len(block)
            try:
                self._encoded = self._decoder.decode(block, final=not block).encode()
            except UnicodeError as error:
                raise self._refusal(error) from error
            if not block:
                break
        count = min(len(buffer), len(self._encoded))
        buffer[:count], self._encoded = self._encoded[:count], self._encoded[count:]
        self._line += bytes(buffer[:count]).count(b"\n")
        return count

    def _refusal(self, error: UnicodeError) -> EncodingError:
        """Return the error for what cannot be decoded, which follows what has been read."""
        line, place, reason, content = self._line, "", str(error), b""
        if isinstance(error, UnicodeDecodeError):
            line += error.object[: error.start].decode(error.encoding, "ignore").count("\n")
            place, reason = f"byte {self._size - len(error.object) + error.start + 1:,} of the file: ", error.reason
            content = error.object[error.object.rfind(b"\n", 0, error.start) + 1 :].split(b"\n", 1)[0]
        if self._declared:
            name = self._encoding.upper()
            return EncodingError(
                f"not {name}, which the byte-order mark declares ({place}{reason})", line, "save the file in UTF-8"
            )
        remedy = f"omit {argument('encoding')}: it is UTF-8" if content and _is_utf8(content) else suggest(content)
        return EncodingError(f"not {self._encoding} ({place}{reason})", line, remedy)

    def close(self) -> None:
        self._stream.close()
        super().close()


def in_utf8(stream: io.BufferedReader, encoding: str | None = None) -> BinaryIO:
    """Return a file as UTF-8: itself, unless it is in another encoding.

    Args:
        stream: its bytes.
        encoding: the encoding, if it is known; by default that of the byte-order mark, or UTF-8.

    Raises:
        EncodingError: the file has the mark of another encoding, or lacks a mark by which the order of bytes is known;
            or, while it is read, it is not in this encoding.
    """
    start = stream.peek(4)[:4]
    marked = next((name for mark, name in MARKS if start.startswith(mark)), None)
    name = marked if encoding is None else codecs.lookup(encoding).name
    if name is None:
        return stream
    family = name.rpartition("-")[0] if name == marked else name  # its decoder takes the mark away
    if marked and not marked.startswith(name):
        problem = f"begins with the byte-order mark of {marked.removesuffix('-sig').upper()}, not of {encoding}"
        raise EncodingError(problem, 1, f"omit {argument('encoding')}")
    if name in ("utf-16", "utf-32") and start and not marked:
        remedy = f"pass {argument('encoding', f'{name}-le')} or {argument('encoding', f'{name}-be')}"
        raise EncodingError("the file has no byte-order mark, so that the order of its bytes is unknown", 1, remedy)
    if name in UTF8:
        return stream
    declared = marked is not None
    return io.BufferedReader(_InUtf8(stream, family if declared else str(encoding), declared=declared), _BLOCK)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def suggest(line: bytes) -> str:
    """Return the remedy for a line that is not UTF-8: the encodings in which it is text, with what it says in them.

    Args:
        line: the line, or the part of it that is known.
    """
    texts = {encoding: text for encoding, scripts in SCRIPTS.items() if (text := _text(line, encoding, scripts))}
    likely = sorted(texts, key=lambda encoding: _oddness(texts[encoding], SCRIPTS[encoding]))
    excerpts: dict[str, str] = {}
    for encoding in likely:
        excerpts.setdefault(_excerpt(texts[encoding]), encoding)  # of those that agree on it, the first
    choices = [f"{encoding} ('{excerpt}')" for excerpt, encoding in excerpts.items()][:SUGGESTED]
    if not choices:
        return "convert the file to UTF-8"
    return (
        f"pass {argument('encoding')} with that in which this is right: {', '.join(choices)}; or if other files are in "
        "UTF-8, save this one in UTF-8, too"
    )


def _text(line: bytes, encoding: str, scripts: tuple[str, ...]) -> str:
    """Return the line in an encoding; "" if it is no text with letters of these scripts beside ASCII."""
    try:
        text = line.decode(encoding)
    except UnicodeDecodeError:
        return ""
    letters = [character for character in text if character > "\x7f" and character.isalpha() and character not in SIGNS]
    foreign = any(not unicodedata.name(letter, "").startswith(scripts) for letter in letters)
    controls = any(
        unicodedata.category(character) in ("Cc", "Co", "Cn") for character in text if character not in "\t\r"
    )
    return "" if foreign or controls else text


def _oddness(text: str, scripts: tuple[str, ...]) -> float:
    """Return how unusual a text is, compared with other readings of the same bytes.

    That is the share, among the characters beyond ASCII, of symbols, of rare ones, and of those that do not suit the
    characters beside them; and one more for words in Latin letters nearly all of which are beyond ASCII, and for
    Japanese without syllables.
    """
    latin = "LATIN" in scripts
    beyond = [beside for beside in zip(" " + text, text, text[1:] + " ", strict=False) if beside[1] > "\x7f"]
    odd = sum(
        not character.isalpha()
        or (before.islower() and character.isupper())
        or (not latin and any(beside.isascii() and beside.isalpha() for beside in (before, after)))
        or (character > "\u9fff" and not "가" <= character <= "힣")
        for before, character, after in beyond
    )
    letters = [character for character in text if character.isalpha()]
    if latin:
        unlikely = 4 * sum(letter > "\x7f" for letter in letters) > 3 * len(letters)
    else:
        unlikely = "HIRAGANA" in scripts and not any("ぁ" <= letter <= "ヿ" for letter in letters)
    return odd / max(1, len(beyond)) + unlikely


def _excerpt(text: str) -> str:
    """Return the part of a text around its first character beyond ASCII."""
    first = next((place for place, character in enumerate(text) if character > "\x7f"), 0)
    start = max(0, first - _EXCERPT // 2)
    return " ".join(text[start : start + _EXCERPT].split())
