"""Signatures of documents: numbers that are equal for equal documents, and likely to be for nearly equal ones.

In: the text of a document. Out: 64 bits of its folded text (`labelled.folding`), of its lines, passages and host, and a
number for each band of its MinHash signature. Nearly equal documents, by the Jaccard similarity s of the n-grams of
bytes of their folded texts (those of `labelled.duplicates`), have at least one band in common with probability
1 - (1 - s^ROWS)^BANDS: 0.93 at 0.7, 0.998 at 0.8, all but certain at 0.9 (locality-sensitive hashing: Leskovec et al.,
Mining of Massive Datasets, 3.4).

The signature is that of one permutation hashing (Li et al. 2012): each n-gram has one hash, whose upper bits choose one
of the places of the signature, which has the smallest of them; a place without any takes that of the next one that has
(Shrivastava and Li 2014).
"""

from __future__ import annotations

import hashlib

import numpy as np

from unmask.data.cleaning.overlap import word_hashes
from unmask.data.cleaning.urls import host_of
from unmask.data.corpus.hashes import Hashes, mixed, segment_hashes
from unmask.data.labelled.duplicates import ngram_hashes
from unmask.data.labelled.folding import fold

BANDS, ROWS = 21, 6
"""Bands of a signature, and the number of hashes in each."""
WORDS, EVERY = 50, 4
"""Number of words of a passage, and of how many passages one is compared."""
KEY = np.dtype("<u8")
_SIZE = BANDS * ROWS
_STARTS = np.array([(place << 64) // _SIZE + (place > 0) for place in range(_SIZE)], np.uint64)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def identity(folded: bytes) -> bytes:
    """Return 8 bytes that are equal for equal folded texts, and for no others: among 50 million, by chance of 1e-4."""
    return hashlib.blake2b(folded, digest_size=8).digest()


def bands(folded: bytes) -> np.ndarray:
    """Return a number for each band, (BANDS,) uint64; zeros for a text that is shorter than an n-gram."""
    hashes = np.sort(ngram_hashes(folded))
    if not len(hashes):
        return np.zeros(BANDS, KEY)
    places = np.searchsorted(hashes, _STARTS)
    ends = np.append(places[1:], len(hashes))
    filled = np.flatnonzero(places < ends)
    smallest = hashes[np.minimum(places, len(hashes) - 1)]
    if len(filled) < _SIZE:
        following = np.searchsorted(filled, np.arange(_SIZE))
        distance = np.append(filled, filled[0] + _SIZE)[following] - np.arange(_SIZE)
        smallest = smallest[np.append(filled, filled[0])[following]] + distance.astype(np.uint64) * _FACTOR
    rows = smallest.reshape(BANDS, ROWS)
    numbers = np.arange(1, BANDS + 1, dtype=np.uint64)  # different bands are not compared
    for row in range(ROWS):
        numbers = (numbers ^ rows[:, row]) * _FACTOR
        numbers ^= numbers >> np.uint64(32)
    return numbers


def line_keys(lines: list[str]) -> np.ndarray:
    """Return a number for each line, (lines,) uint64, equal for lines with the same folded text."""
    digests = b"".join(hashlib.blake2b(fold(line), digest_size=8).digest() for line in lines)
    return np.frombuffer(digests, KEY)


def passage_keys(text: str) -> Hashes:
    """Return the hashes of the passages of a text that are compared, (passages,) uint64.

    A passage is a window of `WORDS` words, without case and punctuation. Those with the smallest hashes are compared,
    one of `EVERY`: a sample that is the same in each document (Manber 1994, "Finding similar files in a large file
    system").
    """
    words = mixed(word_hashes(text))
    starts = np.arange(max(0, len(words) - WORDS + 1))
    keys = segment_hashes(words, starts, starts + WORDS)
    return keys[keys < np.uint64((1 << 64) // EVERY)]


def host_key(url: str) -> bytes:
    """Return 8 bytes that are equal for addresses of one host; zeros if there is none."""
    host = host_of(url)
    return hashlib.blake2b(host.encode("utf8", "replace"), digest_size=8).digest() if host else bytes(8)
