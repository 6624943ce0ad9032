"""The kinds of tags of a file: of entities, or without prefixes, such as parts of speech.

Input: the tags of the sentences of a file, as they are written. Output: checked tags, and those that are learned. Three
cases:

- tags of entities (`O`, `B-PER`): their scheme is detected elsewhere;
- tags without prefixes beside `O`: each run of equal tags is an entity, as in Few-NERD;
- tags without prefixes and without `O`: every word has one, such as its part of speech, which is learned as it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from unmask.metrics.token_classification import is_word_tag, split_tag
from unmask.support.errors import UserError
from unmask.support.messages import argument, call

PREFIXES = ("BI", "BIES", "BMES", "BMEW", "BILU")
"""Sets of prefixes that may occur in the same file."""
SUSPICIOUS = re.compile(r"[A-Za-z]?[-_].+|[BIESLUMWbieslumwo0]")
"""Tags without a known prefix that are probably meant as tags of entities, if the file has the tag O too."""
MISSPELLED = re.compile("[BIbi][-_].+")
"""Tags that are meant as tags of entities anyway."""
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
                remedy = (
                    "is it the right column? choose it by number from 0, as in "
                    f"{argument('columns', {'text': 0, 'label': 3})}"
                )
                raise UserError(str(error), file=self.name, line=line, remedy=remedy) from error
            if not any(self.prefixes <= set(together) for together in PREFIXES):
                prefixes = ", ".join(sorted(self.prefixes))
                raise UserError(f"'{tag}': no scheme combines the prefixes {prefixes}", file=self.name, line=line)
            self.known[tag] = tag
        return self.known[tag]

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
    if len(counts) > MANY and len(counts) > total / 10:
        raise UserError(
            f"{len(counts):,} different tags for {total:,} words",
            file=file,
            line=line,
            remedy=f"is it the right column? choose it by number from 0, as in {argument('columns', {'label': 3})}",
        )
