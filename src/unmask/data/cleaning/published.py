"""Published rules for single pages, made for English: Gopher's, C4's and FineWeb's.

**Gopher, quality** (Rae et al. 2021, arXiv 2112.11446, appendix A.1.1): length, words, symbols, bullet points,
ellipses, stop words. In: documents. Out: those that read like prose. The thresholds are those of the paper; rules and
ties are those of datatrove's `gopher_quality_filter.py`, except that words are what white space separates, without the
punctuation around them, where datatrove uses a tokenizer of the language. The stop words are English: for text in other
languages give others, or set `min_stop_words` to 0. In scripts without spaces, the rules for the length of words and
for stop words do not apply.

**Gopher, repetition** (table A1, whose thresholds these are): lines and n-grams that occur again; shares of the
characters of the document, or of its lines. In: documents. Out: those that do not repeat themselves. Ties and the
counting of repeated n-grams, which do not overlap, are those of datatrove's `gopher_repetition_filter.py`; lines are
paragraphs here, so that there is one rule for both. N-grams are hashed all at once. Most documents repeat none of five
words, and so none of more; for others, the n-grams are walked through only where a bound of what they can amount to is
above the threshold.

**C4**: lines that end like sentences, and pages without code, placeholders and policies. In: documents. Out: the lines
that are kept, unless the document is dropped. Raffel et al. 2020 (JMLR 21:140), section 2.2, and `c4_utils.py` of
tensorflow_datasets, from which the rules for long words, citations and policies are. Sentences are counted as sentencex
splits them. The list of bad words is not part of unmask: `bad_words` names a file of them. Terminal punctuation of
other scripts counts, too; Thai and Lao have none, and need none.

**FineWeb**: documents whose lines are lists, fragments or repeated. In: documents. Out: those that most lines of are
sentences. Penedo et al. 2024 (arXiv 2406.17557), section 3.6, and datatrove's `fineweb_quality_filter.py`: lines that
end with terminal punctuation, short lines, and characters in repeated lines, of which the paper allows 0.1; the code of
datatrove has 0.01 as its default. The last rule of that file, line breaks per word, is `max_breaks`. Thai and Lao have
no terminal punctuation, and need none.
"""

from __future__ import annotations

import re
import string
import unicodedata

import numpy as np

from unmask.data.cleaning.rule import Document, Judge, RuleSettings, Verdict, split_words
from unmask.data.text.files import read_text_lines
from unmask.data.text.sentences import cut_sentences
from unmask.support.errors import UserError
from unmask.support.scripts import SENTENCE_ENDS, UNSPACED, mark_class

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
_AROUND = string.punctuation + "“”‘’„«»…–—‹›。，、！？：；（）「」『』【】《》·•"
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
POLICIES = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")
_SENTENCE_END = re.compile(f"[{SENTENCE_ENDS}]")
_CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")


class GopherQuality(RuleSettings, frozen=True, kw_only=True):
    """The table [gopher_quality].

    Attributes:
        min_words, max_words: bounds of the number of words.
        min_word_length, max_word_length: bounds of the mean length of a word, in characters.
        max_symbols: maximum number of hash signs, and of ellipses, per word.
        max_bullets: maximum share of lines that begin with a bullet point.
        max_ellipses: maximum share of lines that end with an ellipsis.
        min_alphabetic: minimum share of words with a letter.
        min_stop_words: how many of the stop words must occur.
        stop_words: common words of the language, in lower case.
    """

    min_words: int = 50
    max_words: int = 100_000
    min_word_length: float = 3
    max_word_length: float = 10
    max_symbols: float = 0.1
    max_bullets: float = 0.9
    max_ellipses: float = 0.3
    min_alphabetic: float = 0.8
    min_stop_words: int = 2
    stop_words: tuple[str, ...] = STOP_WORDS

    def reason(self, document: Document) -> str:
        """See `RuleSettings`."""
        tokens = document.words
        words = [word for token in tokens if (word := token.strip(_AROUND))]
        if len(words) < self.min_words:
            return "few words"
        if len(words) > self.max_words:
            return "many words"
        if document.is_spaced:
            mean = sum(map(len, words)) / max(1, len(words))
            if not self.min_word_length <= mean <= self.max_word_length:
                return "long words" if mean > self.max_word_length else "short words"
        text, total = document.text, max(1, len(tokens))
        if text.count("#") / total > self.max_symbols:
            return "hash signs"
        if (text.count("...") + text.count("…")) / total > self.max_symbols:
            return "ellipses"
        lines = document.lines
        if sum(line.startswith(("•", "-", "*", "‣", "◦")) for line in lines) / len(lines) > self.max_bullets:
            return "bullet points"
        if sum(line.endswith(("...", "…")) for line in lines) / len(lines) > self.max_ellipses:
            return "lines that end with ellipses"
        alphabetic = sum(token.isalpha() or any(map(str.isalpha, token)) for token in tokens)
        if alphabetic / total < self.min_alphabetic:
            return "words without letters"
        has_few = len({*self.stop_words}.intersection(map(str.lower, words))) < self.min_stop_words
        return "no stop words" if document.is_spaced and has_few else ""


class GopherRepetition(RuleSettings, frozen=True, kw_only=True):
    """The table [gopher_repetition].

    Attributes:
        max_lines: maximum share of lines that occurred before.
        max_line_characters: maximum share of characters in such lines.
        max_top: maximum share of characters in the most frequent n-gram, by n.
        max_repeated: maximum share of characters in n-grams that occurred before, by n.
    """

    max_lines: float = 0.3
    max_line_characters: float = 0.2
    max_top: tuple[tuple[int, float], ...] = ((2, 0.2), (3, 0.18), (4, 0.16))
    max_repeated: tuple[tuple[int, float], ...] = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))

    def reason(self, document: Document) -> str:
        """See `RuleSettings`."""
        return self._lines(document) or self._ngrams(document)

    def _lines(self, document: Document) -> str:
        repeated, characters = repeated_lines(document.lines)
        if repeated / len(document.lines) > self.max_lines:
            return "repeated lines"
        return "characters in repeated lines" if characters / len(document.text) > self.max_line_characters else ""

    def _ngrams(self, document: Document) -> str:
        numbers: dict[str, int] = {}
        words = [numbers.setdefault(word, len(numbers)) for word in document.words]
        ids = np.array(words, np.uint64)
        ends = np.cumsum([0, *map(len, document.words)])
        size, hashes = len(document.text), ids
        tops, repeats = dict(self.max_top), dict(self.max_repeated)
        for n in range(2, min(max((*tops, *repeats), default=0), len(ids)) + 1):
            hashes = hashes[:-1] * _FACTOR + ids[n - 1 :] + np.uint64(1)
            hashes ^= hashes >> np.uint64(29)
            limit = tops.get(n, repeats.get(n))
            if limit is None:
                continue
            ordered = np.sort(hashes)
            starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
            if n in tops:
                counts = np.diff(starts, append=len(ordered))
                most = int(counts.max())
                best = int(np.isin(hashes, ordered[starts[counts == most]]).argmax()) if most > 1 else 0  # the first
                length = int(ends[best + n] - ends[best]) + (n - 1) * document.is_spaced
                if length * most / size > limit:
                    return f"most frequent {n}-gram"
            if n in repeats:
                if len(starts) == len(hashes):
                    return ""  # nor do longer ones repeat
                _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
                is_repeated = np.ones(len(hashes), bool)
                is_repeated[first] = False
                if _covered(is_repeated, n, ends) / size > limit and _repeated(inverse, n, ends) / size > limit:
                    return f"repeated {n}-grams"
        return ""


def repeated_lines(lines: list[str]) -> tuple[int, int]:
    """Return how many lines occurred before, and the number of characters in them."""
    if len(set(lines)) == len(lines):
        return 0, 0
    seen = set[str]()
    count = characters = 0
    for line in lines:
        if line in seen:
            count, characters = count + 1, characters + len(line)
        seen.add(line)
    return count, characters


def _covered(is_repeated: np.ndarray, n: int, ends: np.ndarray) -> int:
    """Return the number of characters in words of repeated n-grams, at least that in those that do not overlap."""
    deltas = np.zeros(len(ends), np.int64)
    places = np.flatnonzero(is_repeated)
    deltas[places] += 1
    deltas[places + n] -= 1
    return int(np.diff(ends)[np.cumsum(deltas)[:-1] > 0].sum())


def _repeated(ngrams: np.ndarray, n: int, ends: np.ndarray) -> int:
    """Return the number of characters in n-grams that occurred before, none of which overlap."""
    seen, characters, place, each = set[int](), 0, 0, ngrams.tolist()
    while place < len(each):
        if each[place] in seen:
            characters += int(ends[place + n] - ends[place])
            place += n
        else:
            seen.add(each[place])
            place += 1
    return characters


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


class FineWeb(RuleSettings, frozen=True, kw_only=True):
    """The table [fineweb].

    Attributes:
        min_terminal: minimum share of lines that end with terminal punctuation.
        max_short: maximum share of short lines.
        short: maximum length of a short line, in characters.
        max_repeated: maximum share of characters in lines that occurred before.
        max_breaks: maximum number of line breaks per word.
    """

    min_terminal: float = 0.12
    max_short: float = 0.67
    short: int = 30
    max_repeated: float = 0.1
    max_breaks: float = 0.3

    def reason(self, document: Document) -> str:
        """See `RuleSettings`."""
        lines = document.lines
        if document.marks_sentences and sum(map(ends_sentence, lines)) / len(lines) < self.min_terminal:
            return "lines without terminal punctuation"
        if sum(len(line) <= self.short for line in lines) / len(lines) > self.max_short:
            return "short lines"
        if repeated_lines(lines)[1] / sum(map(len, lines)) > self.max_repeated:
            return "characters in repeated lines"
        return "line breaks" if (len(lines) - 1) / max(1, len(document.words)) > self.max_breaks else ""
