"""Encodings of text other than UTF-8: those that a byte-order mark declares are read, for others there is advice.

Input: the bytes of a file. Output: the same text in UTF-8, if it is UTF-16 or UTF-32 with a byte-order mark; for a line
that is not UTF-8, the encodings in which it could be, with what it says in them. Nothing is guessed: many sequences of
bytes are text in several encodings.
"""

from __future__ import annotations

import codecs
import io
import unicodedata
from itertools import pairwise
from typing import Any, BinaryIO

MARKS = (
    *((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32")),  # first: it begins with that of UTF-16
    *((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")),
)
"""Byte-order marks, each with its encoding."""
SCRIPTS = {
    "cp1252": ("LATIN",),
    "cp1250": ("LATIN",),
    "cp1251": ("CYRILLIC",),
    "koi8-r": ("CYRILLIC",),
    "cp1253": ("GREEK",),
    "shift_jis": ("HIRAGANA", "KATAKANA", "CJK"),
    "euc-jp": ("HIRAGANA", "KATAKANA", "CJK"),
    "gb18030": ("CJK",),
    "big5": ("CJK",),
    "euc-kr": ("HANGUL",),
}
"""Encodings to suggest, each with the scripts of the letters that it is used for."""
SUGGESTED = 3
_EXCERPT = 24
_BLOCK = 1 << 16


class EncodingError(Exception):
    """Raised while a file is read that is not in the encoding that its byte-order mark declares."""

    def __init__(self, encoding: str, line: int, reason: str) -> None:
        super().__init__(f"not {encoding.upper()}, which the byte-order mark declares ({reason})")
        self.line = line


class _InUtf8(io.RawIOBase):
    """The text of a file in another encoding, as UTF-8."""

    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        self._stream, self._encoding = stream, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._encoded, self._line = b"", 1

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._encoded:
            block = self._stream.read(_BLOCK)
            try:
                self._encoded = self._decoder.decode(block, final=not block).encode()
            except UnicodeDecodeError as error:
                before = error.object[: error.start].decode(error.encoding, "ignore")  # of this block, not yet read
                raise EncodingError(self._encoding, self._line + before.count("\n"), error.reason) from error
            except UnicodeError as error:
                raise EncodingError(self._encoding, self._line, str(error)) from error
            if not block:
                break
        count = min(len(buffer), len(self._encoded))
        buffer[:count], self._encoded = self._encoded[:count], self._encoded[count:]
        self._line += bytes(buffer[:count]).count(b"\n")
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


def in_utf8(stream: io.BufferedReader) -> BinaryIO:
    """Return a file as UTF-8: itself, unless it begins with a byte-order mark of another encoding.

    Reading raises an `EncodingError`, which has the line, if the file is not in the encoding of its mark.
    """
    start = stream.peek(4)[:4]
    encoding = next((encoding for mark, encoding in MARKS if start.startswith(mark)), None)
    return stream if encoding is None else io.BufferedReader(_InUtf8(stream, encoding), _BLOCK)


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
    remedy = "convert the file to UTF-8"
    return f"{remedy}, from the encoding in which this is right: {', '.join(choices)}" if choices else remedy


def _text(line: bytes, encoding: str, scripts: tuple[str, ...]) -> str:
    """Return the line in an encoding; "" if it is no text with letters of these scripts beside ASCII."""
    try:
        text = line.decode(encoding)
    except UnicodeDecodeError:
        return ""
    letters = [character for character in text if character > "\x7f" and character.isalpha()]
    foreign = any(not unicodedata.name(letter, "").startswith(scripts) for letter in letters)
    controls = any(
        unicodedata.category(character) in ("Cc", "Co", "Cn") for character in text if character not in "\t\r"
    )
    return "" if foreign or controls else text


def _oddness(text: str, scripts: tuple[str, ...]) -> float:
    """Return how unusual a text is, compared with other readings of the same bytes.

    That is the share, among the characters beyond ASCII, of symbols, of rare ones, and of those that do not suit the
    character before them; and one more for words in Latin letters nearly all of which are beyond ASCII, and for
    Japanese without syllables.
    """
    latin = "LATIN" in scripts
    beyond = [(before, character) for before, character in pairwise(" " + text) if character > "\x7f"]
    odd = sum(
        not character.isalpha()
        or (before.islower() and character.isupper())
        or (not latin and before.isascii() and before.isalpha())
        or (character > "\u9fff" and not "가" <= character <= "힣")
        for before, character in beyond
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
