"""Masking of spans of whole words, as in SpanBERT (Joshi et al. 2020, section 3.1).

The length of a span, in words, is drawn from a geometric distribution with p = 0.2, truncated at 10 and renormalized
(3.8 words on average); the span begins with the word of a random token. Spans are drawn until the budget is spent; the
last one is cut there, even within a word. Adjacent spans form one span. The replacement is drawn once for each span
(masking.py of facebookresearch/SpanBERT). Differences from its code: a span does not extend beyond one text, the budget
is rounded to the nearest number (there rounded up), and random tokens are drawn uniformly, as the paper does not
specify another distribution.

Masking of whole words, single or several in a row.

- `ngram`: up to three words, n of them with a probability proportional to 1/n (Lan et al. 2020, section 4.1: .545,
  .273, .182). As in create_pretraining_data.py of google-research/albert, words are visited in random order and an n
  is drawn at each; the n-gram is shortened if it would exceed the budget, and skipped if that does not suffice or if
  one of its words is already masked. Different from that code: n-grams do not cross [SEP].
- `whole_word`: the same with single words, which is BERT's whole-word masking (google-research/bert, README of
  May 2019).

Words are only masked as a whole, so fewer tokens than the budget may be masked, but never more: if every word of a
sequence is longer than the budget, none is masked (a Thai sentence may be a single word: no context would be left).
The replacement is drawn for each token independently, as in both reference implementations.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from unmask.data.batches.masking import Begins, MaskingSettings, find_words


class SpanMaskingSettings(MaskingSettings, frozen=True, kw_only=True, tag="span"):
    """The recipe's [masking] for `kind = "span"`; see `MaskingSettings`.

    Attributes:
        p: parameter of the geometric distribution of lengths.
        longest: maximum number of words in a span.
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

    def choose(
        self, ids: np.ndarray, candidates: np.ndarray, number: int, begins: Begins, rng: np.random.Generator
    ) -> np.ndarray:
        """See `MaskingSettings`."""
        starts, stops = find_words(ids, candidates, begins)
        inside = np.zeros(len(ids) + 1, np.int64)
        inside[starts] += 1
        inside[stops] -= 1
        inside = np.flatnonzero(inside.cumsum()[:-1])  # positions of tokens in words
        masked, left = np.zeros(len(ids), bool), min(number, len(inside))
        sums = span_sums(self.p, self.longest)
        while left:
            free = inside[~masked[inside]]
            word = int(np.searchsorted(starts, free[rng.integers(len(free))], side="right")) - 1
            last = word + 1 + int(np.searchsorted(sums, rng.random(), side="right"))
            end = starts[word]
            for other in range(word, min(last, len(starts))):
                if starts[other] != end:
                    break
                end = stops[other]
            new = np.flatnonzero(~masked[starts[word] : end])[:left] + starts[word]
            masked[new] = True
            left -= len(new)
        return np.flatnonzero(masked)

    def draw(self, masked: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """See `MaskingSettings`; all tokens of a span share a number."""
        spans = span_indices(masked)
        return rng.random(int(spans[-1]) + 1)[spans] if len(spans) else np.zeros(0)


@cache
def span_sums(p: float, longest: int) -> np.ndarray:
    """Return the probabilities of spans of at most n words, (longest - 1,), for n from 1 on."""
    probabilities = (1 - p) ** np.arange(longest)
    return (probabilities / probabilities.sum()).cumsum()[:-1]


def span_indices(masked: np.ndarray) -> np.ndarray:
    """Return the index, from 0, of the span that each masked token belongs to; adjacent tokens are in one span.

    Shape:
        masked: (masked,) sorted positions of masked tokens; returns (masked,).
    """
    return np.cumsum(np.diff(masked, prepend=masked[:1]) > 1)


class WholeWordMaskingSettings(MaskingSettings, frozen=True, kw_only=True, tag="whole_word"):
    """The recipe's [masking] for `kind = "whole_word"`; see `MaskingSettings`."""

    whole_words = True

    @property
    def words(self) -> int:
        """See `MaskingSettings`."""
        return 1

    def choose(
        self, ids: np.ndarray, candidates: np.ndarray, number: int, begins: Begins, rng: np.random.Generator
    ) -> np.ndarray:
        """See `MaskingSettings`."""
        firsts, ends = find_words(ids, candidates, begins)
        if not len(firsts):
            return firsts
        starts, stops, taken = firsts.tolist(), ends.tolist(), [False] * len(firsts)
        budget, sums = number, ngram_sums(self.words)
        for word, uniform in zip(rng.permutation(len(starts)).tolist(), rng.random(len(starts)).tolist(), strict=True):
            if not budget:
                break
            size = _draw_size(word, uniform, starts, stops, sums)
            while size and stops[word + size - 1] - starts[word] > budget:
                size -= 1
            if size and not any(taken[word : word + size]):
                taken[word : word + size] = [True] * size
                budget -= stops[word + size - 1] - starts[word]
        selected = [np.arange(starts[word], stops[word]) for word, chosen in enumerate(taken) if chosen]
        return np.concatenate(selected) if selected else firsts[:0]


class NgramMaskingSettings(WholeWordMaskingSettings, frozen=True, kw_only=True, tag="ngram"):
    """The recipe's [masking] for `kind = "ngram"`; see `MaskingSettings`.

    Attributes:
        longest: maximum number of consecutive words masked at once.
    """

    longest: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.longest < 1:
            raise ValueError("longest must be at least 1")

    @property
    def words(self) -> int:
        """See `MaskingSettings`."""
        return self.longest


@cache
def ngram_sums(longest: int) -> np.ndarray:
    """Return the sums of 1/n up to each n, (longest,): a size n is drawn with a probability proportional to 1/n."""
    return np.cumsum(1 / np.arange(1, longest + 1))


def _draw_size(word: int, uniform: float, starts: list[int], stops: list[int], sums: np.ndarray) -> int:
    """Draw the size n of an n-gram that begins with a word, proportional to 1/n, limited to adjacent words."""
    most = 1
    while most < len(sums) and word + most < len(starts) and starts[word + most] == stops[word + most - 1]:
        most += 1
    return 1 + int(np.searchsorted(sums[:most], uniform * sums[most - 1], side="right"))
