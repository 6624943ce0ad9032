"""Token ids of many texts in one array, so that all of them can be cut and framed at once.

Input: texts. Output: the same ids as those of `Tokenizer.encode_many`. Many texts are encoded with a cache of words.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from unmask.data.tokenizers.words import WordCache

if TYPE_CHECKING:
    from unmask.data.tokenizers.tokenizer import Ids, Tokenizer

MANY = 1000
"""Number of texts from which on words are repeated so often that the cache is faster than the library."""


class Ragged(NamedTuple):
    """Sequences of different lengths, concatenated.

    Attributes:
        ids: (tokens,).
        lengths: (sequences,) int64.
    """

    ids: Ids
    lengths: npt.NDArray[np.int64]

    def split(self) -> list[Ids]:
        """Return the sequences."""
        return np.split(self.ids, np.cumsum(self.lengths)[:-1]) if len(self.lengths) else []

    def cut(self, lengths: npt.NDArray[np.int64]) -> Ragged:
        """Return the beginnings of the sequences, of these lengths."""
        if np.array_equal(lengths, self.lengths):
            return self
        return Ragged(self.ids[spans(np.cumsum(self.lengths) - self.lengths, lengths)], lengths)


def spans(starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the indices from each start on, as many as its length, concatenated."""
    ends = np.cumsum(lengths)
    return np.arange(lengths.sum()) + np.repeat(starts - (ends - lengths), lengths)


def encode_ragged(tokenizer: Tokenizer, texts: Sequence[str]) -> Ragged:
    """Encode several texts, without adding special tokens."""
    if len(texts) >= MANY and (cache := _cache(tokenizer)).splits:
        encoded = list(map(cache.encode, texts))
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded)) // cache.dtype.itemsize
        return Ragged(np.frombuffer(b"".join(encoded), cache.dtype), lengths)
    arrays = tokenizer.encode_many(texts)
    lengths = np.fromiter(map(len, arrays), np.int64, len(arrays))
    return Ragged(np.concatenate([np.zeros(0, np.int32), *arrays]), lengths)


@lru_cache(maxsize=1)  # the texts to evaluate on have the words of those to train on
def _cache(tokenizer: Tokenizer) -> WordCache:
    return WordCache(tokenizer, "i4")
