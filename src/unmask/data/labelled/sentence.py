"""A sentence as words with tags, from a raw text, a list of words, or a file.

Input: a text, which is split into words as by BERT's pre-tokenizer, or words, which are joined into a text.
Output: the text and the offsets of its words, in code points.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers.pre_tokenizers import BertPreTokenizer

from unmask.metrics.token_classification import Chunk, chunks

CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ceaf\U0002f800-\U0002fa1f"
"""Characters that BERT surrounds with spaces (google-research/bert, `_is_chinese_char`)."""

_PARTS = re.compile(f"[{CHINESE}]|[^{CHINESE}]+")
_UNSPACED = re.compile(f"[\u3000-\u30ff\uff00-\uffef{CHINESE}]")  # also kana and full-width punctuation
_PUNCTUATION = BertPreTokenizer()


@dataclass(frozen=True)
class Sentence:
    """The words of a text, and their tags if known.

    Attributes:
        text: the text.
        starts, stops: offsets of each word in the text, in code points; stops are exclusive.
        tags: tag of each word, in IOB2; empty if unknown.
        file, line: location of the sentence; "" and 0 if it is not from a file.
        step: number of lines from each word to the next: 1 in columns, 0 in a row.
        document: index of its document in the file, if documents are marked.
        irregular: number of its entities whose tags violate the scheme of the file.
    """

    text: str
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    tags: tuple[str, ...] = ()
    file: str = ""
    line: int = 0
    step: int = 0
    document: int | None = None
    irregular: int = 0

    @property
    def words(self) -> list[str]:
        """The words."""
        return [self.text[start:stop] for start, stop in zip(self.starts, self.stops, strict=True)]

    @property
    def entities(self) -> list[Chunk]:
        """The entities of the tags, with offsets in code points of the text."""
        return self.in_text(chunks(self.tags))

    def in_text(self, found: Sequence[Chunk]) -> list[Chunk]:
        """Convert entities from word indices to offsets in code points."""
        return [Chunk(kind, self.starts[start], self.stops[stop - 1]) for kind, start, stop in found]


def split_text(text: str) -> Sentence:
    """Split a text into words at white space; punctuation marks and Chinese characters are separate words."""
    offsets = [
        (start + part.start(), start + part.end())
        for word, (start, _) in _PUNCTUATION.pre_tokenize_str(text)
        for part in _PARTS.finditer(word)
    ]
    return Sentence(text, tuple(start for start, _ in offsets), tuple(stop for _, stop in offsets))


def join_words(words: Sequence[str]) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Join words into a text, separated by spaces except between Chinese or Japanese characters.

    Returns:
        The text, and the starts and the stops of the words in it, in code points.

    Raises:
        ValueError: a word is empty.
    """
    text, starts, stops = [], [], []
    offset, before = 0, ""
    for word in words:
        if not word:
            raise ValueError("a word is empty")
        if before and not (_UNSPACED.match(before[-1]) and _UNSPACED.match(word[0])):
            text.append(" ")
            offset += 1
        starts.append(offset)
        offset += len(word)
        stops.append(offset)
        text.append(word)
        before = word
    return "".join(text), tuple(starts), tuple(stops)
