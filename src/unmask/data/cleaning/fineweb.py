"""FineWeb's rules: documents whose lines are lists, fragments or repeated.

In: documents. Out: those that most lines of are sentences. Penedo et al. 2024 (arXiv 2406.17557), section 3.6, and
datatrove's `fineweb_quality_filter.py`: lines that end with terminal punctuation, short lines, and characters in
repeated lines, of which the paper allows 0.1; the code of datatrove has 0.01 as its default. The last rule of that
file, line breaks per word, is `max_breaks`. Thai and Lao have no terminal punctuation, and need none.
"""

from __future__ import annotations

from unmask.data.cleaning.c4 import ends_sentence
from unmask.data.cleaning.gopher import repeated_lines
from unmask.data.cleaning.rule import Document, RuleSettings


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
