"""Gopher's rules for the quality of documents: length, words, symbols, bullet points, ellipses, stop words.

In: documents. Out: those that read like prose. Rae et al. 2021 (arXiv 2112.11446), appendix A.1.1. The thresholds are
those of the paper; rules and ties are those of datatrove's `gopher_quality_filter.py`, except that words are what white
space separates, without the punctuation around them, where datatrove uses a tokenizer of the language. The stop words
are English: for text in other languages give others, or set `min_stop_words` to 0. In scripts without spaces, the rules
for the length of words and for stop words do not apply.
"""

from __future__ import annotations

import string

from unmask.data.cleaning.rule import Document, Judge, RuleSettings, Verdict

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
_AROUND = string.punctuation + "“”‘’„«»…–—‹›。，、！？：；（）「」『』【】《》·•"


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

    def build(self) -> Judge:
        """See `RuleSettings`."""
        stop_words = frozenset(self.stop_words)

        def judge(document: Document) -> Verdict:
            return Verdict(document, self._reason(document, stop_words))

        return judge

    def _reason(self, document: Document, stop_words: frozenset[str]) -> str:
        """Return why a document is dropped; "" if it is not."""
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
        has_few = len(stop_words.intersection(map(str.lower, words))) < self.min_stop_words
        return "no stop words" if document.is_spaced and has_few else ""
