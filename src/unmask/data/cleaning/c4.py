"""C4's rules: lines that end like sentences, and pages without code, placeholders and policies.

In: documents. Out: the lines that are kept, unless the document is dropped. Raffel et al. 2020 (JMLR 21:140), section
2.2, and `c4_utils.py` of tensorflow_datasets, from which the rules for long words, citations and policies are.
Sentences are counted as sentencex splits them. The list of bad words is not part of unmask: `bad_words` names a file of
them. Terminal punctuation of other scripts counts, too; Thai and Lao have none, and need none.
"""

from __future__ import annotations

import re
import unicodedata

from unmask.data.cleaning.rule import Document, Judge, RuleSettings, Verdict, split_words
from unmask.data.text.files import read_text_lines
from unmask.data.text.sentences import cut_sentences
from unmask.support.errors import UserError
from unmask.support.scripts import SENTENCE_ENDS, UNSPACED, mark_class

POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_SENTENCE_END = re.compile(f"[{SENTENCE_ENDS}]")
_CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")


class C4(RuleSettings, frozen=True, kw_only=True):
    """The table [c4].

    Attributes:
        min_words: minimum number of words of a line.
        max_word_length: maximum length of a word in a line, in characters.
        min_sentences: minimum number of sentences of what is left.
        needs_terminal: remove lines that do not end with terminal punctuation, as C4 does; FineWeb does not.
        bad_words: a file of words, one a line; documents with one of them are dropped.
    """

    min_words: int = 3
    max_word_length: int = 1000
    min_sentences: int = 5
    needs_terminal: bool = True
    bad_words: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that decide."""
        return (self.bad_words,) if self.bad_words else ()

    def build(self) -> Judge:
        """See `RuleSettings`."""
        bad = _read_words(self.bad_words) if self.bad_words else None

        def judge(document: Document) -> Verdict:
            lowered = document.text.lower()
            if "lorem ipsum" in lowered:
                return Verdict(document, "lorem ipsum")
            if "{" in document.text:
                return Verdict(document, "curly bracket")
            if bad is not None and bad.search(unicodedata.normalize("NFC", lowered)):
                return Verdict(document, "bad word")
            lines: list[str] = []
            changes: dict[str, int] = {}
            for line in document.lines:
                text = _CITATION.sub("", line).strip() if "[" in line else line
                if reason := self._reason(text, document):
                    changes[reason] = changes.get(reason, 0) + 1
                else:
                    lines.append(text)
            left = Document("\n\n".join(lines), document.url)
            if not _has_sentences(lines, self.min_sentences):
                return Verdict(document, "few sentences")
            return Verdict(left, changes=changes)

        return judge

    def _reason(self, line: str, document: Document) -> str:
        """Return why a line of a document is removed; "" if it is not."""
        if self.needs_terminal and document.marks_sentences and (not ends_sentence(line) or line.endswith("...")):
            return "line without terminal punctuation"
        words, is_spaced = split_words(line), document.is_spaced
        if is_spaced and len(words) < self.min_words:
            return "line of few words"
        if is_spaced and len(line) > self.max_word_length and max(map(len, words)) > self.max_word_length:
            return "line with a long word"
        lowered = line.lower()
        if "javascript" in lowered:
            return "line about JavaScript"
        return "line about policies" if any(policy in lowered for policy in POLICIES) else ""


def ends_sentence(line: str) -> bool:
    """Return whether a line ends with terminal punctuation."""
    return _SENTENCE_END.match(line, max(0, len(line) - 1)) is not None


def _has_sentences(lines: list[str], least: int) -> bool:
    count = 0
    for line in lines:
        if count >= least:
            break
        count += sum(1 for _ in cut_sentences(line))
    return count >= least


def _read_words(path: str) -> re.Pattern[str]:
    """Return the pattern of listed words, not beside letters of other words, except in scripts without spaces."""
    letter, is_unspaced = rf"[^\W{UNSPACED}]", re.compile(f"[{UNSPACED}]").match
    groups: dict[tuple[str, str], list[str]] = {}
    for _, line in read_text_lines(path):
        if word := unicodedata.normalize("NFC", line.strip().lower()):
            around = "" if is_unspaced(word[0]) else f"(?<!{letter})", "" if is_unspaced(word[-1]) else f"(?!{letter})"
            groups.setdefault(around, []).append(re.escape(word))
    if not groups:
        raise UserError("has no words", file=path)
    listed = "|".join(f"{before}(?:{'|'.join(words)}){after}" for (before, after), words in groups.items())
    return re.compile(rf"(?:{listed})(?!{mark_class()})")
