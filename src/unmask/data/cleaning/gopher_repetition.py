"""Gopher's rules for repetition: lines and n-grams that occur again within a document.

In: documents. Out: those that do not repeat themselves. Rae et al. 2021 (arXiv 2112.11446), table A1, whose thresholds
these are: shares of the characters of the document, or of its lines. Ties and the counting of repeated n-grams, which
do not overlap, are those of datatrove's `gopher_repetition_filter.py`; lines are paragraphs here, so that there is one
rule for both.

N-grams are hashed all at once. Most documents repeat none of five words, and so none of more; for others, the n-grams
are walked through only where a bound of what they can amount to is above the threshold.
"""

from __future__ import annotations

import numpy as np

from unmask.data.cleaning.rule import Document, Judge, RuleSettings, Verdict

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


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

    def build(self) -> Judge:
        """See `RuleSettings`."""

        def judge(document: Document) -> Verdict:
            return Verdict(document, self._lines(document) or self._ngrams(document))

        return judge

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
