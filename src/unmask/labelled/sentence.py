"""A sentence as words with tags, whichever way it came: a raw text, a list of words, a row or some lines of a file.

In: a text, whose words are found as BERT's pre-tokenisation finds them, or words, which are joined to a text.
Out: the text and where its words stand in it, in code points.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers.pre_tokenizers import BertPreTokenizer

from unmask.metrics.token_classification import Chunk, chunks

CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ceaf\U0002f800-\U0002fa1f"
"""Characters that BERT puts spaces around (google-research/bert, `_is_chinese_char`)."""

_PARTS = re.compile(f"[{CHINESE}]|[^{CHINESE}]+")
_UNSPACED = re.compile(f"[\u3000-\u30ff\uff00-\uffef{CHINESE}]")  # also kana and full-width punctuation
_PUNCTUATION = BertPreTokenizer()


@dataclass(frozen=True)
class Sentence:
    """Words of a text, and their tags where they are known.

    Attributes:
        text: what the places count in.
        starts, stops: of each word, in code points; a stop is exclusive.
        tags: of each word, in IOB2; empty where none are known.
        file, line: where it stands, 0 where in no file.
        step: how many lines further the next word stands: 1 in columns, 0 in a row.
        document: number of its document in the file, where documents are marked.
        irregular: how many of its entities were tagged otherwise than the scheme of the file has it.
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
        """The entities that the tags spell, their places in code points of the text."""
        return self.in_text(chunks(self.tags))

    def in_text(self, found: Sequence[Chunk]) -> list[Chunk]:
        """Return entities whose places count words with places that count code points."""
        return [Chunk(kind, self.starts[start], self.stops[stop - 1]) for kind, start, stop in found]


def split_text(text: str) -> Sentence:
    """Find the words of a text: what stands between white space; punctuation and Chinese characters one by one."""
    places = [
        (start + part.start(), start + part.end())
        for piece, (start, _) in _PUNCTUATION.pre_tokenize_str(text)
        for part in _PARTS.finditer(piece)
    ]
    return Sentence(text, tuple(start for start, _ in places), tuple(stop for _, stop in places))


def join_words(words: Sequence[str]) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Return the text of words, with a space between two unless both meet in Chinese or Japanese, and their places.

    Raises:
        ValueError: a word is empty.
    """
    text, starts, stops = [], [], []
    place, before = 0, ""
    for word in words:
        if not word:
            raise ValueError("a word is empty")
        if before and not (_UNSPACED.match(before[-1]) and _UNSPACED.match(word[0])):
            text.append(" ")
            place += 1
        starts.append(place)
        place += len(word)
        stops.append(place)
        text.append(word)
        before = word
    return "".join(text), tuple(starts), tuple(stops)
