"""Words of a text with their tags: the text and the offsets of its words, in code points.

Input: a text, which is split into words as by BERT's pre-tokenizer, or words, which are joined into a text.
Output: a `TaggedSentence`, its tags in IOB2.

IOB1 (Ramshaw and Marcus 1995): B- only if an entity immediately follows another one of the same type; IOB2 (Tjong Kim
Sang and Veenstra 1999): B- on every first word; BIOES, also known as BMES, BMEWO and BILOU: different prefixes for
first, inner and last words and for entities of a single word. All are read by the same rules
(`metrics.token_classification.chunks`), so the scheme is needed only to count irregular entities.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from tokenizers.pre_tokenizers import BertPreTokenizer

from unmask.data.labelled.plain_tags import RUNS, check_plain, mark_runs
from unmask.metrics.token_classification import Chunk, chunks, is_word_tag, split_tag

WORDS = ("words", "tokens")
TAGS = ("tags", "ner_tags", "labels")
"""Keys of words and tags in JSON Lines, unless `columns` gives others."""
TEXTS = ("text", "sentence")
"""Keys of a text that is split into words, if tags are not read."""

CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002ceaf\U0002f800-\U0002fa1f"
"""Characters that BERT surrounds with spaces (google-research/bert, `_is_chinese_char`)."""

_PARTS = re.compile(f"[{CHINESE}]|[^{CHINESE}]+")
_UNSPACED = re.compile(f"[\u3000-\u30ff\uff00-\uffef{CHINESE}]")  # also kana and full-width punctuation
_PUNCTUATION = BertPreTokenizer()


class Relation(NamedTuple):
    """A relation of a type between two spans of a sentence, by their indices."""

    type: str
    head: int
    tail: int


@dataclass(frozen=True)
class TaggedSentence:
    """The words of a text, and their tags if known.

    Attributes:
        text: the text.
        starts, stops: offsets of each word in the text, in code points; stops are exclusive.
        tags: tag of each word, in IOB2; empty if unknown.
        file, line: location of the sentence; "" and 0 if it is not from a file.
        step: number of lines from each word to the next: 1 in columns, 0 in a row.
        document: index of its document in the file, if documents are marked.
        irregular: number of its entities whose tags violate the scheme of the file.
        spans: its entities as ranges of words, which may overlap, instead of tags; None: they are those of the tags.
        relations: the relations between these spans, if they were read.
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
    spans: tuple[Chunk, ...] | None = None
    relations: tuple[Relation, ...] = ()

    @property
    def words(self) -> list[str]:
        """The words."""
        return [self.text[start:stop] for start, stop in zip(self.starts, self.stops, strict=True)]

    @property
    def entities(self) -> list[Chunk]:
        """The entities, with offsets in code points of the text."""
        return self.in_text(self.chunks)

    @property
    def chunks(self) -> Sequence[Chunk]:
        """The entities, as ranges of words."""
        return chunks(self.tags) if self.spans is None else self.spans

    def in_text(self, entities: Sequence[Chunk]) -> list[Chunk]:
        """Convert entities from word indices to offsets in code points."""
        return [Chunk(kind, self.starts[start], self.stops[stop - 1]) for kind, start, stop in entities]


def split_text(text: str) -> TaggedSentence:
    """Split a text into words at white space; punctuation marks and Chinese characters are separate words."""
    offsets = [
        (start + part.start(), start + part.end())
        for word, (start, _) in _PUNCTUATION.pre_tokenize_str(text)
        for part in _PARTS.finditer(word)
    ]
    return TaggedSentence(text, tuple(start for start, _ in offsets), tuple(stop for _, stop in offsets))


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


Scheme = Literal["IOB1", "IOB2", "BIOES"]


def write_tags(entities: Sequence[Chunk], number: int, scheme: Scheme = "IOB2") -> list[str]:
    """Return the tags of `number` words for these entities, which must be in order and must not overlap."""
    tags = ["O"] * number
    before = Chunk("", -1, -1)
    for chunk in entities:
        inner = chunk.stop - chunk.start - 1
        if scheme == "BIOES":
            roles = "B" + "I" * (inner - 1) + "E" if inner else "S"
        else:
            follows = (before.type, before.stop) == (chunk.type, chunk.start)
            roles = ("B" if scheme == "IOB2" or follows else "I") + "I" * inner
        tags[chunk.start : chunk.stop] = [f"{role}-{chunk.type}" for role in roles]
        before = chunk
    return tags


def detect_scheme(sentences: Sequence[Sequence[str]]) -> tuple[Scheme, list[int]]:
    """Detect the scheme in which the sentences of a file are tagged.

    Args:
        sentences: the tags of each sentence.

    Returns:
        The scheme that most entities conform to, and for each sentence the number of entities that do not.
    """
    roles = {split_tag(tag)[0] for tag in {tag for tags in sentences for tag in tags}}
    candidates: tuple[Scheme, ...] = ("BIOES",) if roles & {"E", "S"} else ("IOB2", "IOB1")
    counts = {scheme: [_irregular(tags, scheme) for tags in sentences] for scheme in candidates}
    best = min(candidates, key=lambda scheme: sum(counts[scheme]))
    return best, counts[best]


def _irregular(tags: Sequence[str], scheme: Scheme) -> int:
    """Count the entities that are tagged differently in this scheme."""
    entities = chunks(tags)
    written = write_tags(entities, len(tags), scheme)
    return sum(
        any(split_tag(tags[index]) != split_tag(written[index]) for index in range(chunk.start, chunk.stop))
        for chunk in entities
    )


def in_iob2(sentences: Sequence[TaggedSentence], notes: list[str] | None = None) -> list[TaggedSentence]:
    """Convert the tags of the sentences of one file to IOB2; tags of words, such as parts of speech, stay as they are.

    Args:
        notes: receives a line if entities are read from tags without prefixes.

    Raises:
        UserError: the file is not one of words with tags; see `check_plain`.
    """
    tags: Sequence[Sequence[str]] = [sentence.tags for sentence in sentences]
    if any(map(is_word_tag, {tag for old in tags for tag in old})):
        check_plain([sentence.words for sentence in sentences], tags, sentences[0].file, sentences[0].line)
        runs = mark_runs(tags)
        if runs is None:
            return list(sentences)
        tags = runs
        if notes is not None:
            notes.append(f"{sentences[0].file}: {RUNS}")
    _, irregular = detect_scheme(tags)
    return [
        replace(sentence, tags=tuple(write_tags(chunks(old), len(old))), irregular=irregular[number])
        for number, (sentence, old) in enumerate(zip(sentences, tags, strict=True))
    ]
