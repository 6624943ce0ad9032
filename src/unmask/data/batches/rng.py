"""Keyed random generators: the same seed, name and key give the same draws in any process and any order.

The state of a generator is never stored, so a resumed run, or one with another number of workers, draws the same
numbers.
"""

from __future__ import annotations

import zlib

import numpy as np

_MASK, _WORD = (1 << 64) - 1, (1 << 32) - 1


def derive_rng(seed: int, name: str, *key: int) -> np.random.Generator:
    """Return an independent generator for a seed, a purpose and a key (non-negative integers).

    It is `numpy.random.default_rng([seed, CRC-32 of the name, *key])`, made in less than half of the time.
    """
    words = []  # as SeedSequence takes integers apart: 32 bits each, the lowest first
    for number in (seed, zlib.crc32(name.encode()), *key):
        words.append(number & _WORD)
        while number := number >> 32:
            words.append(number & _WORD)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(np.array(words, np.uint32))))


def derive_seed(seed: int, name: str, *key: int) -> int:
    """Return 63 keyed bits, for example to seed torch before a micro-batch of a step."""
    return int(derive_rng(seed, name, *key).integers(1 << 63))


def permuted(index: int, size: int, seed: int) -> int:
    """Return the image of `index` under a seeded permutation of range(size), without a table.

    A four-round Feistel network over the next even power of two; values outside the range are encrypted again (cycle
    walking: Black and Rogaway 2002, "Ciphers with arbitrary finite domains", method 2).
    """
    half = max(1, (size - 1).bit_length() + 1 >> 1)
    low = (1 << half) - 1
    while True:
        left, right = index >> half, index & low
        for step in range(4):
            left, right = right, left ^ (_mix(right + (step << 32) + seed) & low)
        index = left << half | right
        if index < size:
            return index


def _mix(value: int) -> int:
    """Return the output of splitmix64's finalizer."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31
