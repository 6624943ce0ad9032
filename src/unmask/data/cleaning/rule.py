"""What a rule of cleaning is: it keeps a document, changes it, or drops it, and says why.

Input: a `Document`. Output: a `Verdict`. Each rule is a class of settings in this package, which `build` turns
into a function of one document alone: so documents may be judged in any order and by any number of processes.

A line is a paragraph of the document: in pages, in JSON Lines and in rows of tables each line is one, in plain text a
block between blank lines. Words are what white space separates; in scripts without spaces, such as Chinese and Thai,
each letter with its marks is a word, in Tibetan each syllable, and rules about the length of words do not apply.

A `Tally` says what cleaning did: for each rule how much it dropped and changed, why, and some of it to look at. Those
of several sources are merged in the order of the sources, so they do not depend on who counted them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import msgspec

from unmask.support.durable import read_json
from unmask.support.errors import counted
from unmask.support.scripts import OF_CLAUSES, SYLLABLE_MARKS, THAI, TIBETAN, UNSPACED, mark_class

_UNSPACED = re.compile(f"[{UNSPACED}{TIBETAN}]")
_THAI = re.compile(f"[{THAI}]")
_SHARE = 0.3
"""Share of its letters from which a document is in a script."""
SAMPLES, EXCERPT = 5, 300
"""How many samples of each reason are kept, and how many characters of each."""


@cache
def _letters_and_words() -> re.Pattern[str]:
    """Return the pattern of words in scripts without spaces, some of which have marks, and of others beside them."""
    return re.compile(rf"[{OF_CLAUSES}](?:{mark_class()})*|[{UNSPACED}]|[^\s{UNSPACED}{SYLLABLE_MARKS}]+")


def split_words(text: str) -> list[str]:
    """Return the words of a text in a script with spaces, or with marks in their place as in older Ethiopic text."""
    for mark in SYLLABLE_MARKS:
        text = text.replace(mark, " ")
    return text.split()


class Document:
    """The text of a document, and its parts, each found when it is first needed.

    Args:
        text: its text, with lines separated by blank lines.
        url: the address of its page; "" if that is not known.
    """

    def __init__(self, text: str, url: str = "") -> None:
        self.text, self.url = text, url

    @cached_property
    def lines(self) -> list[str]:
        """Its lines."""
        return self.text.split("\n\n")

    @cached_property
    def is_spaced(self) -> bool:
        """Whether spaces separate its words."""
        return not self._is_in(_UNSPACED)

    @cached_property
    def marks_sentences(self) -> bool:
        """Whether marks end its sentences."""
        return self.is_spaced or not self._is_in(_THAI)

    def _is_in(self, letters: re.Pattern[str]) -> bool:
        return not self.text.isascii() and len(letters.findall(self.text)) >= _SHARE * len(self.text)

    @cached_property
    def words(self) -> list[str]:
        """Its words."""
        return split_words(self.text) if self.is_spaced else _letters_and_words().findall(self.text)


@dataclass(frozen=True)
class Verdict:
    """What a rule says of a document.

    Attributes:
        document: the document, changed or as it was.
        dropped: why it is dropped; "" if it is not.
        changes: number of changes of each kind.
    """

    document: Document
    dropped: str = ""
    changes: Mapping[str, int] = field(default_factory=dict)


Judge = Callable[[Document], Verdict]


class RuleSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a rule: a table of the file that `clean` names. Subclasses implement `build` or `reason`."""

    def build(self) -> Judge:
        """Return the function that judges documents.

        Raises:
            UserError: a setting is invalid, or a package is missing.
        """
        return lambda document: Verdict(document, self.reason(document))

    def reason(self, document: Document) -> str:
        """Return why a document is dropped; "" if it is not."""
        raise NotImplementedError


class RuleTally(msgspec.Struct):
    """What a rule did.

    Attributes:
        judged: number of documents that it judged.
        documents, bytes: what it dropped.
        changed, removed: number of documents that it changed, and how many bytes shorter they became.
        reasons: number of dropped documents, or of changes, by reason.
        samples: starts of dropped documents by reason; of changed ones, of what they were.
    """

    judged: int = 0
    documents: int = 0
    bytes: int = 0
    changed: int = 0
    removed: int = 0
    reasons: dict[str, int] = {}
    samples: dict[str, list[str]] = {}

    def add(self, reason: str, text: str, number: int = 1) -> None:
        """Count a reason."""
        self.reasons[reason] = self.reasons.get(reason, 0) + number
        samples = self.samples.setdefault(reason, [])
        if len(samples) < SAMPLES:
            samples.append(text[:EXCERPT])

    def drop(self, reason: str, text: str) -> None:
        """Count a document that is dropped."""
        self.documents += 1
        self.bytes += len(text.encode())
        self.add(reason, text)

    def merge(self, other: RuleTally) -> None:
        """Add what was counted for a later source."""
        for name in ("judged", "documents", "bytes", "changed", "removed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        for reason, samples in other.samples.items():
            self.samples[reason] = [*self.samples.get(reason, []), *samples][:SAMPLES]


class Tally(msgspec.Struct):
    """What cleaning did.

    Attributes:
        documents, bytes: what was read.
        left, left_bytes: what is left.
        rules: what each rule did, in their order.
    """

    documents: int = 0
    bytes: int = 0
    left: int = 0
    left_bytes: int = 0
    rules: dict[str, RuleTally] = {}

    def rule(self, name: str) -> RuleTally:
        """Return the tally of a rule."""
        return self.rules.setdefault(name, RuleTally())

    def merge(self, other: Tally) -> None:
        """Add what was counted for a later source."""
        for name in ("documents", "bytes", "left", "left_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, tally in other.rules.items():
            self.rule(name).merge(tally)

    def lines(self) -> Iterator[str]:
        """Yield lines for people; none if nothing was read."""
        if not self.documents:
            return
        share = 100 * self.left_bytes / max(1, self.bytes)
        yield f"cleaning: {counted(self.documents, 'document')} read, {self.left:,} left ({share:.1f} % of the bytes)"
        for name, tally in self.rules.items():
            parts = []
            if tally.documents:
                parts.append(f"{counted(tally.documents, 'document')} dropped ({tally.bytes / 1e6:,.1f} MB)")
            if tally.changed:
                parts.append(f"{tally.changed:,} changed")
            reasons = sorted(tally.reasons.items(), key=lambda item: (-item[1], item[0]))
            listed = ", ".join(f"{reason} {count:,}" for reason, count in reasons[:6])
            yield f"  {name}: {'; '.join(parts) or 'nothing dropped'}{f': {listed}' if listed else ''}"
            if tally.documents > 0.5 * tally.judged and tally.judged >= 20:
                yield f"  {name} dropped more than half of the documents: look at the samples, and at its settings"


def read_tally(path: Path) -> Tally:
    """Read the tally of a corpus; an empty one, if it was not cleaned.

    Raises:
        UserError: the file is damaged.
    """
    return read_json(path, Tally, "build the corpus again") if path.exists() else Tally()
