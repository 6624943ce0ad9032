"""Folding of texts: what is left of them without case, spaces and punctuation.

Input: texts. Output: bytes, in Unicode's composed form (NFC), that are equal for texts that people read as the same.
Full-width and half-width forms, such as Ａ and ｶ, are the ordinary characters.

Many texts are folded at once, and stay in one buffer. ASCII is folded by tables of bytes, other characters by tables of
code points; normalization is only needed for texts with characters that compose or decompose, or whose case folding is
several characters.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

SEPARATOR = b"\0"
"""What follows each folded text."""
CHUNK = 1024
"""Texts that are folded at a time, unless they are longer than `CHUNK_SIZE` together."""
CHUNK_SIZE = 1 << 17
"""Characters, about, that are folded at a time: they fit into a processor's cache."""
SAMPLED = 1000
"""Texts, about, by which their mean length is estimated."""
WORD = 8
"""Bytes of NUL at the end of the content, so that a word may be read at each position."""
_SPACES_AND_PUNCTUATION = bytes(
    code for code in range(1, 128) if not chr(code).isalnum() and chr(code) not in "$+<=>^`|~"
)
_LOWER = bytes(range(256)).lower()
_SPACE = 0x20
_UNKNOWN, _SPECIAL = 0x110000, 0x110001
"""Entries of a table: not computed yet; a character whose folding depends on others, or is several characters."""


@dataclass(frozen=True)
class FoldedTexts:
    """Folded texts in one buffer.

    Attributes:
        content: slots of bytes, each followed by a separator.
        ends: the end of each slot, (slots,).
        slots: the slot of each text, (texts,).
        chunks: numbers of slots, (chunks,): texts in earlier slots are before those in later ones, as `fold_all` was
            given them; within a chunk they may be in another order.
    """

    content: bytes
    ends: np.ndarray
    slots: np.ndarray
    chunks: np.ndarray

    def __len__(self) -> int:
        return len(self.slots)

    def __getitem__(self, index: int) -> bytes:
        slot = self.slots[index]
        return self.content[self.ends[slot - 1] + 1 if slot else 0 : self.ends[slot]]

    def __iter__(self) -> Iterator[bytes]:
        starts, stops = self.spans()
        return map(self.content.__getitem__, map(slice, starts.tolist(), stops.tolist()))

    def spans(self) -> tuple[np.ndarray, np.ndarray]:
        """Return where each text starts and stops in the content, (texts,) each."""
        return np.append(0, self.ends + 1)[self.slots], self.ends[self.slots]

    @cached_property
    def texts(self) -> np.ndarray:
        """The text of each slot, (slots,); -1: none."""
        texts = np.full(len(self.ends), -1)
        texts[self.slots] = np.arange(len(self))
        return texts

    def blocks(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield where parts of the content of about `size` bytes, of whole chunks, start and stop."""
        start = 0
        for stop in (self.ends[self.chunks - 1] + 1).tolist():
            if stop - start >= size:
                yield start, stop
                start = stop
        if self.ends.size and start <= self.ends[-1]:
            yield start, int(self.ends[-1]) + 1

    def select(self, chosen: np.ndarray) -> FoldedTexts:
        """Return some of the texts, given their indices or a mask."""
        return replace(self, slots=self.slots[chosen])

    @classmethod
    def of(cls, folded: Sequence[bytes]) -> FoldedTexts:
        """Return texts that are folded already, which may contain separators."""
        sizes = np.fromiter(map(len, folded), np.int64, len(folded))
        content = SEPARATOR.join([*folded, bytes(WORD)])
        return cls(content, np.cumsum(sizes + 1) - 1, np.arange(len(folded)), _chunks(folded)[1])


def fold(text: str) -> bytes:
    """Return a text in Unicode's composed form, without case, spaces and punctuation; what consists of them is kept."""
    text = text.replace("\0", " ")
    folded = _fold_ascii([text]) if text.isascii() else _fold_others([text])
    return folded[: -len(SEPARATOR)] or text.strip().encode("utf8", "surrogatepass")


def fold_all(texts: Sequence[str], is_ascii: np.ndarray | None = None) -> FoldedTexts:
    """Return what `fold` returns of each text.

    Args:
        texts: the texts.
        is_ascii: which of them are ASCII, (texts,) bool, if that is known.
    """
    if is_ascii is None:
        is_ascii = np.fromiter(map(str.isascii, texts), bool, len(texts))
    folded = fold_letters(texts, is_ascii)
    first, last = folded.spans()
    empty = np.flatnonzero(first == last)
    if not len(empty):
        return folded
    content, ends, slots = folded.content, folded.ends, folded.slots
    texts = [texts[index].replace("\0", " ") for index in empty.tolist()]
    kept = [text.strip().encode("utf8", "surrogatepass") for text in texts]
    slots[empty] = len(ends) + np.arange(len(empty))
    ends = np.append(ends, len(content) - WORD + np.cumsum([len(text) + 1 for text in kept]) - 1)
    content = content[:-WORD] + SEPARATOR.join([*kept, bytes(WORD)])
    return FoldedTexts(content, ends, slots, np.append(folded.chunks, len(ends)))


def fold_letters(texts: Sequence[str], is_ascii: np.ndarray) -> FoldedTexts:
    """Return what `fold` returns of each text, and nothing of those that consist of spaces and punctuation.

    The result of a text up to an ASCII character is the start of that of the whole text: no ASCII character composes
    with those before it (UAX #15).

    Args:
        texts: the texts.
        is_ascii: which of them are ASCII, (texts,) bool.
    """
    others = np.flatnonzero(~is_ascii)
    starts, stops = _chunks(texts)
    before = np.searchsorted(others, starts)  # the number of other texts before each chunk
    after = np.searchsorted(others, stops)
    parts: list[bytes] = []
    for start, stop, first, last in np.stack([starts, stops, before, after], 1).tolist():
        some = list(texts[start:stop])
        indices = (others[first:last] - start).tolist()
        left = [some[index] for index in indices]
        for index in indices:
            some[index] = ""
        parts += [_fold_ascii(some), _fold_others(left)] if left else [_fold_ascii(some)]
    # a chunk is a slot for each of its texts, empty if it is not ASCII, and then the slots of those that are not
    slots = np.arange(len(texts)) + np.repeat(before, stops - starts)
    slots[others] = np.repeat(stops, after - before) + np.arange(len(others))
    content = b"".join([*parts, bytes(WORD)])
    ends = _ends(parts)
    if len(ends) > len(texts) + len(others):
        return fold_letters([text.replace("\0", " ") for text in texts], is_ascii)
    return FoldedTexts(content, ends, slots, stops + after)


def _ends(parts: Sequence[bytes]) -> np.ndarray:
    """Return the places of the separators in parts of the content."""
    starts = np.cumsum([0, *map(len, parts)])
    places = [np.flatnonzero(np.frombuffer(part, np.uint8) == 0) for part in parts]
    return np.concatenate(places or [starts[:0]]) + np.repeat(starts[:-1], list(map(len, places)))


def _chunks(texts: Sequence[str] | Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return where chunks of texts start and stop."""
    lengths = list(map(len, texts[:: 1 + len(texts) // SAMPLED]))
    size = max(1, min(CHUNK, CHUNK_SIZE * len(lengths) // max(1, sum(lengths))))
    starts = np.arange(0, len(texts), size)
    return starts, np.minimum(starts + size, len(texts))


def _joined(texts: Sequence[str]) -> str:
    """Return texts, each followed by a separator."""
    return SEPARATOR.decode().join([*texts, ""])


def _fold_ascii(texts: Sequence[str]) -> bytes:
    return _joined(texts).encode().translate(_LOWER, _SPACES_AND_PUNCTUATION)


def _fold_others(texts: Sequence[str]) -> bytes:
    joined = _joined(texts)
    if joined.count(SEPARATOR.decode()) > len(texts):
        texts = [text.replace(SEPARATOR.decode(), " ") for text in texts]
        joined = _joined(texts)
    folded = _mapped(joined, _fold_character)
    if folded.max(initial=0) < _SPECIAL:
        return _encoded(folded)
    special = np.flatnonzero(folded == _SPECIAL)
    parts = _encoded(np.where(folded == _SPECIAL, np.uint32(_SPACE), folded)).split(SEPARATOR)
    ends = np.flatnonzero(folded == 0)
    rows = np.unique(np.searchsorted(ends, special)).tolist()
    composed = unicodedata.normalize("NFC", _joined([texts[row] for row in rows]).translate(_ordinary_width()))
    composed = unicodedata.normalize("NFC", composed.casefold())
    for row, part in zip(rows, _encoded(_mapped(composed, _keep_character)).split(SEPARATOR), strict=False):
        parts[row] = part
    return SEPARATOR.join(parts)


def _encoded(codes: np.ndarray) -> bytes:
    """Return code points, (characters,) uint32, in UTF-8, without the spaces and punctuation of ASCII."""
    text = codes.tobytes().decode("utf-32-le", "surrogatepass")
    return text.encode("utf8", "surrogatepass").translate(None, _SPACES_AND_PUNCTUATION)


def _mapped(text: str, character: Callable[[str], int]) -> np.ndarray:
    """Return what a function returns of each character of a text, (characters,) uint32."""
    table = _table(character)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    mapped = table.take(codes)
    if mapped.max(initial=0) >= _UNKNOWN:
        new = set(codes[mapped == _UNKNOWN].tolist())
        table[list(new)] = [character(chr(code)) for code in new]
        mapped = table.take(codes)
    return mapped


@cache
def _table(_: Callable[[str], int]) -> np.ndarray:
    """Return the table in which what a function returned of each character is kept."""
    return np.full(sys.maxunicode + 1, _UNKNOWN, "<u4")


def _fold_character(character: str) -> int:
    """Return the code point of a folded character; a space if it is left out; `_SPECIAL`, see there."""
    folded = character.translate(_ordinary_width()).casefold()
    if len(folded) > 1 or _depends(character) or _depends(folded):
        return _SPECIAL
    return _keep_character(folded)


@cache
def _ordinary_width() -> Mapping[int, int]:
    """Return the code points of full-width and half-width forms, each with that of the ordinary character."""
    parts = {code: unicodedata.decomposition(chr(code)).split() for code in (0x3000, *range(0xFF00, 0xFFF0))}
    return {code: int(pair[1], 16) for code, pair in parts.items() if pair and pair[0] in ("<wide>", "<narrow>")}


def _keep_character(character: str) -> int:
    """Return the code point of a character, or a space if it is left out; symbols, such as emoji, are not."""
    category = unicodedata.category(character)
    is_left_out = character != "\0" and (category[0] in "PZ" or category in ("Cc", "Cf"))
    return _SPACE if is_left_out else ord(character)


def _depends(character: str) -> bool:
    """Return whether normalization (NFC) may change a character, alone or beside others; see UAX #15, section 9."""
    return bool(
        unicodedata.combining(character)
        or character in _second()
        or unicodedata.normalize("NFC", character) != character
    )


@cache
def _second() -> frozenset[str]:
    """Return the characters that may compose with the one before them."""
    hangul = (chr(code) for code in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)))
    pairs = set[str]()
    for code in (*range(0xC0, 0x3100), *range(0x10000, 0x18000)):  # all others are as they are, or single characters
        parts = unicodedata.decomposition(chr(code))
        if parts and len(pair := parts.split()) == 2 and parts[0] != "<":
            pairs.add(chr(int(pair[1], 16)))
    return frozenset(hangul) | pairs
