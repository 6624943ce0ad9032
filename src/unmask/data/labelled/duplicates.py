"""Equal and nearly equal examples: what a model is scored on should not be what it learned from.

Texts are equal here if they differ only in Unicode composition, case, spaces and punctuation. Nearly equal texts are
found by MinHash (Broder 1997) over the byte n-grams of these folded texts, by one permutation with rotation
(Li et al. 2012; Shrivastava and Li 2014): the n-grams' hashes are spread over bins, and the smallest of each bin is
kept. Texts that agree in some band of bins are candidates, and the Jaccard similarity of these is then computed.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

NGRAM = 8
"""Bytes of an n-gram."""
BINS, BAND = 64, 4
"""Minima of a text, and how many of them make a band: texts of similarity s agree in a band with probability s^4."""
SIMILAR = 0.8
"""Smallest Jaccard similarity of nearly equal texts."""
CHUNK = 1 << 22
"""Bytes that are hashed at a time."""
MOST_CANDIDATES = 4
"""Training texts of a band that are compared with a text."""
_EMPTY = np.uint32(2**32 - 1)
_SPACES_AND_PUNCTUATION = bytes(code for code in range(128) if not chr(code).isalnum() and chr(code) not in "$+<=>^`|~")
_LEFT_OUT = re.compile("P.|Z.|Cc|Cf")
"""Categories of Unicode that are left out; symbols, such as emoji and plus signs, are part of a text."""


def fold(text: str) -> str:
    """Return a text in Unicode's composed form, without case, spaces and punctuation; what consists of them is kept."""
    if text.isascii():
        folded = text.lower().encode().translate(None, _SPACES_AND_PUNCTUATION).decode()
    else:
        folded = _left_out().sub("", unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold()))
    return folded or text.strip()


@cache
def _left_out() -> re.Pattern[str]:
    """Return a pattern of the characters that `fold` leaves out, as ranges."""
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if _LEFT_OUT.match(unicodedata.category(chr(code))):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return re.compile("[" + "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in ranges) + "]+")


def identities(examples: Sequence[tuple[str, ...]]) -> list[bytes]:
    """Return a digest of each example's texts, which is the same for equal texts in any order.

    Args:
        examples: the texts of each example, such as a pair, or a question and its passage.
    """
    return [
        blake2b("\0".join(sorted(map(fold, texts))).encode("utf8", "surrogatepass"), digest_size=16).digest()
        for texts in examples
    ]


class Overlap(NamedTuple):
    """What held-out examples have in common with training examples.

    Attributes:
        equal: the held-out examples that equal a training example, each with that example's index; in order.
        near: those that nearly equal one.
    """

    equal: dict[int, int]
    near: dict[int, int]


def overlap(train: Sequence[tuple[str, ...]], held: Sequence[tuple[str, ...]]) -> Overlap:
    """Find the held-out examples that are, or nearly are, training examples.

    Args:
        train, held: the texts of each example.
    """
    places: dict[bytes, int] = {}
    for index, identity in enumerate(identities(train)):
        places.setdefault(identity, index)
    equal = {index: places[identity] for index, identity in enumerate(identities(held)) if identity in places}
    others = [index for index in range(len(held)) if index not in equal]
    near = near_duplicates([_folded(texts) for texts in train], [_folded(held[index]) for index in others])
    return Overlap(equal, {others[index]: place for index, place in near.items()})


def _folded(texts: tuple[str, ...]) -> bytes:
    return "\0".join(sorted(map(fold, texts))).encode("utf8", "surrogatepass")


def near_duplicates(train: Sequence[bytes], held: Sequence[bytes]) -> dict[int, int]:
    """Return, for each held-out text that is similar to a training text, the index of one; see `SIMILAR`.

    Texts shorter than an n-gram are similar to none. A text of similarity `SIMILAR` is missed once in 3,000 times.
    """
    if not train or not held:
        return {}
    known, asked = _bands(train), _bands(held)  # (texts, bands) each
    found: dict[int, int] = {}
    grams: dict[int, frozenset[bytes]] = {}
    for band in range(asked.shape[1]):
        order = np.argsort(known[:, band], kind="stable")
        sorted_keys = known[order, band]
        starts, stops = (np.searchsorted(sorted_keys, asked[:, band], side) for side in ("left", "right"))
        for index in np.flatnonzero((stops > starts) & (asked[:, band] != 0)).tolist():
            if index in found:
                continue
            ours = ngrams(held[index])
            for place in order[starts[index] : min(stops[index], starts[index] + MOST_CANDIDATES)].tolist():
                theirs = grams.setdefault(place, ngrams(train[place]))
                if len(ours & theirs) >= SIMILAR * len(ours | theirs):
                    found[index] = place
                    break
    return dict(sorted(found.items()))


def ngrams(text: bytes) -> frozenset[bytes]:
    """Return the n-grams of a text; see `NGRAM`."""
    return frozenset(text[start : start + NGRAM] for start in range(len(text) - NGRAM + 1))


def _bands(texts: Sequence[bytes]) -> np.ndarray:
    """Return a key for each band of each text's minima, (texts, bands) uint64; 0: the text is too short."""
    factor = np.uint64(0x9E3779B97F4A7C15)
    keys = np.zeros((len(texts), BINS // BAND), np.uint64)
    for start, minima in _minima(texts):
        some = keys[start : start + len(minima)]
        for column in range(BAND):
            some *= factor
            some += minima[:, column::BAND]
            some ^= some >> np.uint64(29)
        some |= np.uint64(1)
        some[minima[:, 0] == _EMPTY] = 0
    return keys


def _minima(texts: Sequence[bytes]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the minima of texts in chunks: the first one's index, and (texts, BINS) uint32; `_EMPTY` of short ones."""
    start = 0
    while start < len(texts):
        stop, size = start, 0
        while stop < len(texts) and (size == 0 or size + len(texts[stop]) <= CHUNK):
            size += len(texts[stop])
            stop += 1
        yield start, _minima_of(texts[start:stop])
        start = stop


def _minima_of(texts: Sequence[bytes]) -> np.ndarray:
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    content = np.frombuffer(b"".join(texts) + bytes(NGRAM), np.uint8)
    windows = np.zeros(len(content) - NGRAM, np.uint64)
    for offset in range(NGRAM):  # an n-gram of eight bytes is a number
        windows |= content[offset : offset + len(windows)].astype(np.uint64) << np.uint64(8 * offset)
    rows = np.repeat(np.arange(len(texts)), lengths)
    inside = np.arange(len(windows)) - np.repeat(np.cumsum(lengths) - lengths, lengths) <= np.repeat(
        lengths - NGRAM, lengths
    )
    windows, rows = windows[inside], rows[inside]
    windows *= np.uint64(0x9E3779B97F4A7C15)
    windows ^= windows >> np.uint64(32)
    windows *= np.uint64(0xD6E8FEB86659FD93)
    hashes = (windows >> np.uint64(32)).astype(np.uint32)
    flat = np.full(len(texts) * BINS, _EMPTY)
    np.minimum.at(flat, rows * BINS + (windows & np.uint64(BINS - 1)).astype(np.int64), hashes)
    minima: np.ndarray = flat.reshape(-1, BINS)
    for _ in range(BINS - 1):  # an empty bin takes the minimum of the next one that is not, changed by the distance
        empty = minima == _EMPTY
        if not empty.any() or bool((empty.all(1) | ~empty.any(1)).all()):
            break
        following = np.roll(minima, -1, axis=1)
        moved = np.where(following == _EMPTY, _EMPTY, following * np.uint32(5) + np.uint32(1))
        minima = np.where(empty, moved, minima)
    return minima
