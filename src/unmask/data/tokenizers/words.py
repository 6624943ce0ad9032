"""Word boundaries in a sequence of tokens, for masking of whole words, n-grams and spans.

WordPiece marks the tokens that continue a word (`##`). Byte-level BPE marks only spaces, so here a word also begins
wherever a letter or digit is adjacent to another kind of character, and at each character of a script that is written
without spaces. Otherwise "end." would be a single word, and so would a whole Chinese sentence. Words are never split: a
token that begins within a character or within a run of letters and digits continues the word, and so do accents and
other marks, and invisible characters such as soft hyphens and joiners.

Encoding with a cache of words, which is several times as fast on a corpus, where most words are repeated.

Input: texts. Output: the same ids as those of `Tokenizer.encode`, as bytes.

BERT's normalizer and pre-tokenizer (google-research/bert, tokenization.py) look at one character at a time. Spaces end
words, and each ASCII punctuation mark and each Chinese character is a separate word, so a text can be split there and
its parts encoded separately. Memory use is bounded.

`encode_ragged` encodes many texts into one array, so that all of them can be cut and framed at once, with the ids of
`Tokenizer.encode_many`.

The characters of words, as ELMo reads them: the bytes of their UTF-8 between marks (bilm-tf, `bilm/data.py`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from unmask.support.scripts import UNSPACED

if TYPE_CHECKING:
    from unmask.data.tokenizers.tokenizer import Ids, Tokenizer

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = range(256, 261)
"""Ids beside the 256 bytes."""
CHARACTERS = 261
LONGEST = 50
"""Number of ids of a word, the marks of its begin and its end among them; the bytes of longer words are cut."""

SPACE = "▁"
"""Represents a space in the tokens of unigram vocabularies, and of BPE of whole texts."""

Spelling = npt.NDArray[np.int16]


def spell(content: bytes | list[int]) -> Spelling:
    """Return the ids of a word, (`LONGEST`,).

    Args:
        content: its bytes, or [BEGIN_SENTENCE] or [END_SENTENCE].
    """
    ids = np.full(LONGEST, PADDING, np.int16)
    shown = content[: LONGEST - 2]
    ids[0], ids[1 : len(shown) + 1], ids[len(shown) + 1] = BEGIN_WORD, list(shown), END_WORD
    return ids


def is_cut(word: str) -> bool:
    """Return whether a word has more bytes than are read."""
    return len(word) > (LONGEST - 2) // 4 and len(word.encode()) > LONGEST - 2


_LETTER, _OTHER, _UNSPACED, _SPACE, _SPECIAL = range(5)
_UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")


class WordStarts:
    """Finds the tokens with which words begin.

    Args:
        tokens: the vocabulary in the order of ids, each token as the bytes that it represents; None for special tokens.
    """

    def __init__(self, tokens: Iterable[bytes | None]) -> None:
        ends = [(True, _SPECIAL, _SPECIAL) if token is None else _ends(token) for token in tokens]
        self._apart, self._first, self._last = (np.array(column) for column in zip(*ends, strict=True))

    def __call__(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each token of a text whether a word begins with it."""
        first, last = self._first[ids], self._last[ids]
        # tokens within a character have the kind of the token that began it
        known = np.maximum.accumulate(np.where(last >= 0, np.arange(len(ids)), 0))
        before = np.concatenate([[_SPECIAL], last[known][:-1]])[: len(ids)]
        differs = (first != before) | (first == _UNSPACED)
        return self._apart[ids] | ((first >= 0) & (before != _SPACE) & differs)


def _ends(token: bytes) -> tuple[bool, int, int]:
    """Return whether a token begins with a space, and the kinds of its first and its last character.

    The kind is -1 for a character that continues the one before it, or whose first byte is not in this token.
    """
    text = token.decode(errors="surrogateescape")
    body = text.lstrip()
    if not body:
        return True, _SPACE, _SPACE  # the word continues with the next token
    last = next((index for index in range(-1, -len(body) - 1, -1) if not _continues(body[index])), -1)
    return body != text, _kind(body, 0), _kind(body, last)


def _continues(character: str) -> bool:
    """Return whether a character, such as a mark or a format character, belongs to the one before it."""
    category = unicodedata.category(character)
    return category.startswith("M") or category == "Cf"


def _kind(text: str, index: int) -> int:
    """Return the kind of a character, of which some bytes may be missing; -1: the kind of the preceding character."""
    if _continues(text[index]):
        return -1
    code = ord(text[index])
    if 0xDC80 <= code <= 0xDCFF:  # a byte of an incomplete character
        start = text[:1] if index == 0 else text
        byte = next(
            (ord(character) - 0xDC00 for character in reversed(start) if 0xDCC0 <= ord(character) <= 0xDCFF), None
        )
        return -1 if byte is None else _of_first_byte(byte)
    if _UNSPACED_LETTER.match(text[index]):
        return _UNSPACED
    return _LETTER if text[index].isalnum() else _OTHER


def _of_first_byte(byte: int) -> int:
    """Guess the kind of a character from the first byte of its UTF-8: 0xE3 to 0xE9 begin nearly only Chinese ones."""
    return _UNSPACED if 0xE3 <= byte <= 0xE9 else _LETTER


MAX_CACHED = 1 << 17
"""Words of each of the two generations of a `WordCache`: about 50 MB, and 95 % of English text."""
MAX_CACHED_WORD = 40
"""Characters of a word in it; longer words are rarely repeated."""
_ALONE = r"!-/:-@\[-`{-~"
_CHINESE = "\u4e00-\u9fff"  # the common ones among the characters that BERT surrounds with spaces


class WordCache(dict[str, bytes]):
    """A cache of the ids of recently encoded words.

    Args:
        tokenizer: the tokenizer to encode with.
        dtype: data type of the ids in the returned bytes.

    Attributes:
        dtype: likewise.
        splits: whether texts are split into words; otherwise they are encoded whole, and nothing is gained.
    """

    def __init__(self, tokenizer: Tokenizer, dtype: str) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self.dtype = np.dtype(dtype)
        alone = _ALONE + _CHINESE * tokenizer.isolates_chinese
        self._parts = re.compile(f"[{alone}]|[^{alone}]+")
        self._added = re.compile("|".join(re.escape(token.content) for token in tokenizer.added_tokens) or r"(?!)")
        # A token that contains a space, or that is matched in normalized text, may extend across a split.
        self.splits = tokenizer.kind.name == "wordpiece" and not any(
            token.normalized or re.search(r"\s", token.content) for token in tokenizer.added_tokens
        )
        self._older: dict[str, bytes] = {}

    def encode(self, text: str) -> bytes:
        """Encode a text, without adding special tokens."""
        if not self.splits:
            return self._encode(text)
        return b"".join(map(self.__getitem__, text.split(" ")))

    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        """Encode several texts, without adding special tokens; whole ones on all cores, where words are no help."""
        if not self.splits:
            return self._tokenizer.encode_many(texts)
        return [np.frombuffer(self.encode(text), self.dtype) for text in texts]

    def __missing__(self, word: str) -> bytes:
        ids = self._older.get(word)
        if ids is None:
            parts = [word] if self._added.search(word) else self._parts.findall(word)
            ids = self._encode(word) if len(parts) == 1 else b"".join(map(self.__getitem__, parts))
        if len(word) <= MAX_CACHED_WORD:
            if len(self) >= MAX_CACHED:  # drop the words that were not used since the last time
                self._older = dict(self)
                self.clear()
            self[word] = ids
        return ids

    def _encode(self, text: str) -> bytes:
        return self._tokenizer.encode(text).astype(self.dtype).tobytes()


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
        return split_array(self.ids, self.lengths)

    def cut(self, lengths: npt.NDArray[np.int64]) -> Ragged:
        """Return the beginnings of the sequences, of these lengths."""
        if np.array_equal(lengths, self.lengths):
            return self
        return Ragged(self.ids[spans(np.cumsum(self.lengths) - self.lengths, lengths)], lengths)

    def after(self, id: int) -> Ragged:
        """Return the sequences, each after a token."""
        starts = np.cumsum(self.lengths) - self.lengths
        return Ragged(np.insert(self.ids, starts, id), self.lengths + 1)


def split_array(values: npt.NDArray[Any], lengths: npt.NDArray[np.int64]) -> list[npt.NDArray[Any]]:
    """Return the parts of an array of these lengths, one after another; `np.split` takes several times as long."""
    return [values[start:stop] for start, stop in pairwise([0, *np.cumsum(lengths).tolist()])]


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
