"""Encoding with a cache of words, which is several times as fast on a corpus, where most words are repeated.

Input: texts. Output: the same ids as those of `Tokenizer.encode`, as bytes.

BERT's normalizer and pre-tokenizer (google-research/bert, tokenization.py) look at one character at a time. Spaces end
words, and each ASCII punctuation mark and each Chinese character is a separate word, so a text can be split there and
its parts encoded separately. Memory use is bounded.
"""

from __future__ import annotations

import re

import numpy as np

from unmask.data.tokenizers.tokenizer import Tokenizer

_WORDS = 1 << 17  # capacity of each of the two generations of the cache: about 50 MB, and 95 % of English text
_LONGEST = 40  # characters; longer words are rarely repeated
_PUNCTUATION = r"!-/:-@\[-`{-~"
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
        alone = _PUNCTUATION + _CHINESE * tokenizer.isolates_chinese
        self._parts = re.compile(f"[{alone}]|[^{alone}]+")
        self._added = [token.content for token in tokenizer.added_tokens]
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

    def __missing__(self, word: str) -> bytes:
        ids = self._older.get(word)
        if ids is None:
            parts = [word] if any(token in word for token in self._added) else self._parts.findall(word)
            ids = self._encode(word) if len(parts) == 1 else b"".join(map(self.__getitem__, parts))
        if len(word) <= _LONGEST:
            if len(self) >= _WORDS:  # drop the words that were not used since the last time
                self._older = dict(self)
                self.clear()
            self[word] = ids
        return ids

    def _encode(self, text: str) -> bytes:
        return self._tokenizer.encode(text).astype(self.dtype).tobytes()
