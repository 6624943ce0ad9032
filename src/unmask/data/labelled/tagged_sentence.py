"""Words of a text with their tags: the text and the offsets of its words, in code points, and the kinds of tags.

Input: a text, which is split into words as by BERT's pre-tokenizer, and into letters where a script has no spaces, or
words, which are joined into a text; the tags of the sentences of a file, as they are written. Output: a
`TaggedSentence`, its tags in IOB2. Three kinds of tags:

- tags of entities (`O`, `B-PER`), in a scheme that is detected;
- tags without prefixes beside `O`: each run of equal tags is an entity, as in Few-NERD;
- tags without prefixes and without `O`: every word has one, such as its part of speech, which is learned as it is.

IOB1 (Ramshaw and Marcus 1995): B- only if an entity immediately follows another one of the same type; IOB2 (Tjong Kim
Sang and Veenstra 1999): B- on every first word; BIOES, also known as BMES, BMEWO and BILOU: different prefixes for
first, inner and last words and for entities of a single word. All are read by the same rules
(`metrics.token_classification.chunks`), so the scheme is needed only to count irregular entities.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal, NamedTuple

from tokenizers.pre_tokenizers import BertPreTokenizer

from unmask.data.labelled.delimited import Quoting
from unmask.metrics.token_classification import Chunk, chunks, is_word_tag, split_tag
from unmask.support import scripts
from unmask.support.errors import UserError
from unmask.support.messages import argument, call

PREFIXES = ("BI", "BIES", "BMES", "BMEW", "BILU")
"""Sets of prefixes that may occur in the same file."""
SUSPICIOUS = re.compile(r"[A-Za-z][\W_].+|[-_].+|[BIESLUMWbieslumwo0]")
"""Tags without a known prefix that are probably meant as tags of entities, if the file has the tag O too."""
MISSPELLED = re.compile(r"[BIbi][\W_].+|\(.+[*)]|\*\)+|\"[^\"]+\"|[01]?\.\d+")
"""Tags that are meant as others anyway, such as B_PER, B.PER and B–PER, also by brackets: (PER* and *), as in
CoNLL-2005 and 2012; that are quoted as in CSV; or probabilities, which taggers write into a last column."""
UNQUOTED = "write the file without quotation marks around cells, as pandas does by to_csv(…, quoting=3)"
"""The remedy where words or tags are quoted as in CSV."""
OUTSIDE = frozenset(("other", "outside", "none", "null", "nil", "_", "-", "0"))
"""Tags that may mean that a word is outside of entities, in lower case."""
SEPARATED = re.compile(r"([BIESLUMWbieslumw])[\W_](.+)")
"""Tags that may be a prefix and a type."""
SUFFIXED = re.compile(r"(.+)[\W_]([BI])")
"""Tags whose prefix may be at their end, as in Naver's NER corpus: PER_B."""
HEADERS = frozenset(
    (
        *("word", "words", "token", "tokens", "form", "text"),
        *("tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "pos", "pos_tag", "upos", "xpos"),
    )
)
"""Names of columns, which are a word and its tag only if a header was read as such."""
MANY = 100
"""Number of different tags from which they must be far fewer than words; treebanks have up to a few hundred."""
RUNS = "tags have no prefixes such as B-: each run of equal tags other than O is read as one entity"
"""The note on such a file."""
OF_TOKENS = ("X", "[CLS]", "[SEP]", "[PAD]")
"""Tags of what is no word, in data that was prepared for early code of BERT: later pieces of words, special tokens."""
PIECE = re.compile(r"##\w.*|[▁Ġ].+")
"""A piece of a word, as tokenizers write it: one that continues a word, or one that begins one."""
PIECES = 0.01
"""Share of words that look like pieces from which on they are taken for such."""
WORDS = ("words", "tokens")
TAGS = ("tags", "ner_tags", "labels")
"""Keys of words and tags in JSON Lines, unless `columns` gives others."""
TEXTS = ("text", "sentence")
"""Keys of a text that is split into words, if tags are not read."""
_UNSPACED_LETTER = re.compile(f"[{scripts.UNSPACED}]")
UNSPACED = re.compile(f"[{scripts.UNSPACED}\u3000-\u303f\uff00-\uffef]")
"""Characters without spaces around them: also the punctuation and the full-width characters of these scripts."""
_PUNCTUATION = BertPreTokenizer()
Scheme = Literal["IOB1", "IOB2", "BIOES"]


@dataclass
class Tags:
    """The tags of a file that have been read so far; each distinct tag is checked once."""

    name: str
    known: dict[str, str] = field(default_factory=dict)
    prefixes: set[str] = field(default_factory=set)
    plain: dict[str, int] = field(default_factory=dict)
    """Lines of the tags without a prefix."""

    def check(self, tag: str, line: int) -> str:
        """Return the tag (always the same object).

        Raises:
            UserError: it is not a tag, or no scheme combines its prefix with the others of the file.
        """
        if tag not in self.known:
            read = tag
            try:
                split_tag(tag)
                if is_word_tag(tag):
                    self.plain.setdefault(tag, line)
                elif tag != "O":
                    self.prefixes.add(tag[0])
                wrong = self._wrong(tag)
                if wrong is not None:
                    tag, line = wrong, self.plain[wrong]
                    raise ValueError(f"'{tag}' is not a tag such as O, B-PER or I-PER")
            except ValueError as error:
                remedy = self._remedy(tag, [*self.known, read])
                raise UserError(str(error), file=self.name, line=line, remedy=remedy) from error
            if not any(self.prefixes <= set(together) for together in PREFIXES):
                prefixes = ", ".join(sorted(self.prefixes))
                raise UserError(f"'{tag}': no scheme combines the prefixes {prefixes}", file=self.name, line=line)
            self.known[tag] = tag
        return self.known[tag]

    def _remedy(self, tag: str, others: Sequence[str]) -> str:
        """Return what to do about a tag that cannot be beside others."""
        if tag.startswith('"'):
            return UNQUOTED
        column = f"choose it by number from 0, as in {argument('columns', {'text': 0, 'label': 3})}"
        if parts := SEPARATED.fullmatch(tag):
            return f"write {parts[1].upper()}-{parts[2]}; or is it the wrong column? {column}"
        if tag in OF_TOKENS:
            return (
                "if it stands for a piece of a word, or a special token, give whole words alone, each with the tag of "
                f"its first piece; or is it the wrong column? {column}"
            )
        prefixed = next((other for other in others if other != "O" and not is_word_tag(other)), None)
        if prefixed and tag in self.plain:
            return (
                f"as '{prefixed}' has a prefix, write B-{tag} and I-{tag}; or, if that is a whole name, write it "
                f"without the hyphen; or is it the wrong column? {column}"
            )
        return f"is it the right column? {column}"

    def _wrong(self, tag: str) -> str | None:
        """Return a tag without a prefix that cannot be beside a new one, the new one included."""
        if is_word_tag(tag):
            beside_o = "O" in self.known and SUSPICIOUS.fullmatch(tag)
            return tag if self.prefixes or MISSPELLED.fullmatch(tag) or beside_o else None
        if tag == "O":
            return next(filter(SUSPICIOUS.fullmatch, self.plain), None)
        return next(iter(self.plain), None)


def mark_runs(tags: Sequence[Sequence[str]]) -> list[list[str]] | None:
    """Return tags without prefixes as those of entities in the scheme IOB1; None: there is no O beside them."""
    if not any("O" in sentence for sentence in tags):
        return None
    return [[tag if tag == "O" else f"I-{tag}" for tag in sentence] for sentence in tags]


def check_plain(words: Sequence[Sequence[str]], tags: Sequence[Sequence[str]], file: str, line: int) -> None:
    """Check that tags without prefixes are not something else: texts with labels, a header, the column of words.

    Args:
        words, tags: those of the sentences of a file.
        file, line: the file, and the line of its first word.

    Raises:
        UserError: they are.
    """
    counts = Counter(tag for sentence in tags for tag in sentence)
    total = counts.total()
    texts = sum(" " in word for sentence in words for word in sentence)
    if texts > total / 5:
        raise UserError(
            f"{texts:,} of {total:,} words contain spaces: they are texts with labels, not words with tags",
            file=file,
            line=line,
            remedy=f"is it a file for {call('finetune', 'classification')}?",
        )
    word, tag = words[0][0], tags[0][0]
    if word.lower() in HEADERS and tag.lower() in HEADERS and counts[tag] == 1 and len(counts) > 1:
        raise UserError(f"the line is a header, whose '{tag}' would be a tag", file=file, line=line, remedy="remove it")
    pairs = [match.groups() for match in map(SUFFIXED.fullmatch, counts) if match]
    if both := sorted({kind for kind, role in pairs if role == "B"} & {kind for kind, role in pairs if role == "I"}):
        raise UserError(
            f"the tags have B and I at their end, as that of the beginning of '{both[0]}'",
            file=file,
            line=line,
            remedy=f"write B-{both[0]} and I-{both[0]}, and O outside of entities",
        )
    if len(counts) > MANY and len(counts) > total / 10:
        raise UserError(
            f"{len(counts):,} different tags for {total:,} words",
            file=file,
            line=line,
            remedy=f"is it the right column? choose it by number from 0, as in {argument('columns', {'label': 3})}",
        )


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
    """Split a text into words at white space; punctuation marks are separate words.

    So are the letters of scripts without spaces, each with the marks on it, as entities begin and end at any of them.
    """
    starts, stops = [], []
    for word, (start, stop) in _PUNCTUATION.pre_tokenize_str(text):
        within = _character_starts(word) if _UNSPACED_LETTER.search(word) else []
        starts += [start, *(start + index for index in within)]
        stops += [*(start + index for index in within), stop]
    return TaggedSentence(text, tuple(starts), tuple(stops))


def _character_starts(word: str) -> list[int]:
    """Return where, after its start, a word has a letter of a script without spaces, or goes on after one."""
    starts, before = [], ""
    for index, character in enumerate(word):
        if is_mark(character):
            continue
        if before and (_UNSPACED_LETTER.match(character) or _UNSPACED_LETTER.match(before)):
            starts.append(index)
        before = character
    return starts


def is_mark(character: str) -> bool:
    """Return whether a character belongs to the one before it, such as an accent or a vowel of Thai."""
    return unicodedata.category(character).startswith("M")


def join_words(
    words: Sequence[str], spaced: Sequence[bool] | None = None
) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """Join words into a text.

    Args:
        words: the words.
        spaced: whether a space precedes each word; None: except between characters of scripts without spaces.

    Returns:
        The text, and the starts and the stops of the words in it, in code points.

    Raises:
        ValueError: a word is empty.
    """
    text, starts, stops = [], [], []
    offset, before = 0, ""
    for index, word in enumerate(words):
        if not word:
            raise ValueError("a word is empty")
        unspaced = spaced is None and before and UNSPACED.match(before[-1]) and UNSPACED.match(word[0])
        if before and not unspaced and (spaced is None or spaced[index]):
            text.append(" ")
            offset += 1
        starts.append(offset)
        offset += len(word)
        stops.append(offset)
        text.append(word)
        before = word
    return "".join(text), tuple(starts), tuple(stops)


WordLine = tuple[int, str, str, int | None]
"""A line of a file with a word in each: its number, the word, its tag, and the index of its document, if known."""


def join_lines(lines: Iterable[WordLine | None], file: str, *, gold: bool) -> Iterator[TaggedSentence]:
    """Yield the sentences of a file with a word in each line.

    Args:
        lines: its lines; None where a sentence ends.
        file: name of the file.
        gold: whether there are tags.
    """
    held: list[WordLine] = []
    for line in chain(lines, [None]):
        if line is not None:
            held.append(line)
        elif held:
            numbers, words, tags, documents = zip(*held, strict=True)
            yield TaggedSentence(*join_words(words), tags if gold else (), file, numbers[0], 1, documents[0])
            held = []


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


def describe_pieces(sentences: Sequence[TaggedSentence]) -> list[str]:
    """Return a line if the words of a file seem to be pieces of words, which no other text has."""
    pieces = [(word, sentence) for sentence in sentences for word in sentence.words if PIECE.fullmatch(word)]
    total = sum(len(sentence.starts) for sentence in sentences)
    if len(pieces) < PIECES * total or not pieces:
        return []
    word, first = pieces[0]
    return [
        f"{first.file}: {len(pieces):,} of {total:,} words look like pieces of words that a tokenizer made: "
        f"'{word[:40]}' in the sentence of line {first.line}; they are learned as words: give whole words, each "
        "with the tag of its first piece"
    ]


def describe_quoted(sentences: Sequence[TaggedSentence]) -> list[str]:
    """Return a line if the words of a file are quoted as in CSV, such as four quotation marks for one."""
    quoting = Quoting()
    for word in chain.from_iterable(sentence.words for sentence in sentences):
        quoting.see(word, [word])
    if not quoting.as_csv:
        return []
    what = "are quoted as in CSV, and the quotation marks were read as part of them"
    return [f"{sentences[0].file}: {quoting.quoted:,} words {what}; {UNQUOTED}"]


def describe_outside(tags: Sequence[Sequence[str]], file: str) -> list[str]:
    """Return a line if the most frequent of a file's tags, all without prefixes, may mean: outside of entities."""
    counts = Counter(chain.from_iterable(tags))
    (tag, count), *_ = counts.most_common(1)
    if tag.lower() not in OUTSIDE:
        return []
    return [
        f"{file}: {count:,} of {counts.total():,} words have the tag '{tag}', which is learned and scored as each "
        "other tag: if such words are outside of entities, write O in its place"
    ]


def in_iob2(sentences: Sequence[TaggedSentence], notes: list[str] | None = None) -> list[TaggedSentence]:
    """Convert the tags of the sentences of one file to IOB2; tags of words, such as parts of speech, stay as they are.

    Args:
        notes: receives a line if entities are read from tags without prefixes, if words seem to be pieces of words or
            are quoted, or if a tag of words may mean that they are outside of entities.

    Raises:
        UserError: the file is not one of words with tags; see `check_plain`.
    """
    if notes is not None:
        notes += describe_pieces(sentences) + describe_quoted(sentences)
    tags: Sequence[Sequence[str]] = [sentence.tags for sentence in sentences]
    if any(map(is_word_tag, {tag for old in tags for tag in old})):
        check_plain([sentence.words for sentence in sentences], tags, sentences[0].file, sentences[0].line)
        runs = mark_runs(tags)
        if runs is None:
            if notes is not None:
                notes += describe_outside(tags, sentences[0].file)
            return list(sentences)
        tags = runs
        if notes is not None:
            notes.append(f"{sentences[0].file}: {RUNS}")
    _, irregular = detect_scheme(tags)
    return [
        replace(sentence, tags=tuple(write_tags(chunks(old), len(old))), irregular=irregular[number])
        for number, (sentence, old) in enumerate(zip(sentences, tags, strict=True))
    ]


def _irregular(tags: Sequence[str], scheme: Scheme) -> int:
    """Count the entities that are tagged differently in this scheme."""
    entities = chunks(tags)
    written = write_tags(entities, len(tags), scheme)
    return sum(
        any(split_tag(tags[index]) != split_tag(written[index]) for index in range(chunk.start, chunk.stop))
        for chunk in entities
    )
