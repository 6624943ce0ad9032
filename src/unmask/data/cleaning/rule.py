"""What a rule of cleaning is: it keeps a document, changes it, or drops it, and says why.

Input: a `Document`. Output: a `Verdict`. Each rule is a class of settings in this package, which `build` turns
into a function of one document alone: so documents may be judged in any order and by any number of processes.

A line is a paragraph of the document: in pages, in JSON Lines and in rows of tables each line is one, in plain text a
block between blank lines. Words are what white space separates; in scripts without spaces, such as Chinese and Thai,
each letter with its marks is a word, in Tibetan each syllable, and rules about the length of words do not apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property

import msgspec

from unmask.support.scripts import OF_CLAUSES, SYLLABLE_MARKS, THAI, TIBETAN, UNSPACED, mark_class

_UNSPACED = re.compile(f"[{UNSPACED}{TIBETAN}]")
_THAI = re.compile(f"[{THAI}]")
_SHARE = 0.3
"""Share of its letters from which a document is in a script."""


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
