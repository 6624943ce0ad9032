"""Spans of whole words are hidden: SpanBERT's masking (Joshi et al. 2020, section 3.1).

A span's length is drawn in words from a geometric distribution with p = 0.2, cut off at 10 and normalised again (3.8
words on average), and it begins with the word that a random token belongs to. Spans are drawn until the budget is
spent; the last one is cut where that happens, even within a word. Spans that touch are one span. What stands in their
place is decided for a span as a whole (masking.py of facebookresearch/SpanBERT). Different from its code: a span lies
within one text, the budget is rounded (there rounded up), and random tokens are drawn uniformly, as the paper's
description does not say otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unmask.batches.masking import Begins, Masking, MaskingSettings, find_words


class SpanMaskingSettings(MaskingSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="span"):
    """The recipe's [masking] for `kind = "span"`; see `MaskingSettings`.

    Attributes:
        p: of the geometric distribution of lengths.
        longest: most words of a span.
    """

    p: float = 0.2
    longest: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.p < 1:
            raise ValueError("p must lie between 0 and 1")
        if self.longest < 1:
            raise ValueError("longest must be at least 1")

    @property
    def words(self) -> int:
        """See `MaskingSettings`."""
        return self.longest

    def build(self, *, vocabulary: int, mask: int, special: frozenset[int], begins: Begins) -> SpanMasking:
        """See `MaskingSettings`."""
        return SpanMasking(self, vocabulary=vocabulary, mask=mask, special=special, begins=begins)


class SpanMasking(Masking):
    """See the module.

    Args:
        settings: rate, shares and lengths.
        others: as for `Masking`.
    """

    def __init__(self, settings: SpanMaskingSettings, **others: Any) -> None:
        super().__init__(settings, **others)
        probabilities = (1 - settings.p) ** np.arange(settings.longest)
        self.sums = (probabilities / probabilities.sum()).cumsum()[:-1]

    def choose(self, ids: np.ndarray, candidates: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
        """See `Masking`."""
        starts, stops = find_words(ids, candidates, self.begins)
        inside = np.zeros(len(ids) + 1, np.int64)
        inside[starts] += 1
        inside[stops] -= 1
        inside = np.flatnonzero(inside.cumsum()[:-1])  # tokens of whole words
        hidden, left = np.zeros(len(ids), bool), min(number, len(inside))
        while left:
            free = inside[~hidden[inside]]
            word = int(np.searchsorted(starts, free[rng.integers(len(free))], side="right")) - 1
            last = word + 1 + int(np.searchsorted(self.sums, rng.random(), side="right"))
            end = starts[word]
            for other in range(word, min(last, len(starts))):
                if starts[other] != end:
                    break
                end = stops[other]
            new = np.flatnonzero(~hidden[starts[word] : end])[:left] + starts[word]
            hidden[new] = True
            left -= len(new)
        return np.flatnonzero(hidden)

    def draw(self, hidden: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """See `Masking`: the same number for all tokens of a span."""
        spans = number_spans(hidden)
        return rng.random(int(spans[-1]) + 1)[spans] if len(spans) else np.zeros(0)


def number_spans(hidden: np.ndarray) -> np.ndarray:
    """Number the spans of hidden tokens, which are in order: those that touch are one; return each token's, from 0."""
    return np.cumsum(np.diff(hidden, prepend=hidden[:1]) > 1)
