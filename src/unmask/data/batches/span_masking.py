"""Masking of spans of whole words, as in SpanBERT (Joshi et al. 2020, section 3.1).

The length of a span, in words, is drawn from a geometric distribution with p = 0.2, truncated at 10 and renormalized
(3.8 words on average); the span begins with the word of a random token that is not masked yet: of the next one in a
random order. Spans are drawn until the budget is spent; the last one is cut there, even within a word. Adjacent spans
form one span. The replacement is drawn once for each span (masking.py of facebookresearch/SpanBERT). Differences from
its code: a span does not extend beyond one text, the budget is rounded to the nearest number (there rounded up), and
random tokens are drawn uniformly, as the paper does not specify another distribution.

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

from unmask.data.batches.masking import Joined, MaskingSettings, find_words
from unmask.data.batches.rng import SampleRng
from unmask.data.tokenizers.words import spans


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

    def choose(self, text: Joined, rng: SampleRng) -> np.ndarray:
        """See `MaskingSettings`."""
        firsts, ends = find_words(text)
        inside, word = spans(firsts, ends - firsts), np.repeat(np.arange(len(firsts)), ends - firsts)  # tokens in words
        sample, place = text.sample[inside], text.place[inside]
        order = rng.shuffle("choice", sample, place)
        sizes = 1 + np.searchsorted(span_sums(self.p, self.longest), rng.uniform("length", sample, place), side="right")
        until = np.minimum(word + sizes, _adjacent(firsts, ends)[word])  # the word after a span that begins here
        drawn = [values[order].tolist() for values in (inside, sample, firsts[word], ends[until - 1])]
        masked, left = bytearray(len(text.ids)), text.number.tolist()
        for token, of, start, stop in zip(*drawn, strict=True):
            if masked[token] or not left[of]:
                continue
            for new in range(start, stop):
                if not masked[new] and left[of]:
                    masked[new] = 1
                    left[of] -= 1
        return np.flatnonzero(np.frombuffer(masked, bool))

    def draw(self, text: Joined, masked: np.ndarray, rng: SampleRng) -> np.ndarray:
        """See `MaskingSettings`; all tokens of a span share the number of its first one."""
        first = masked[np.diff(masked, prepend=-2) > 1][span_indices(masked)]
        return super().draw(text, first, rng)


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


def _adjacent(firsts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return for each word the one after the last that follows without a gap, (words,)."""
    last = np.flatnonzero(np.append(firsts[1:] != ends[:-1], [True] * (len(firsts) > 0)))
    return 1 + np.repeat(last, np.diff(last, prepend=-1))


class WholeWordMaskingSettings(MaskingSettings, frozen=True, kw_only=True, tag="whole_word"):
    """The recipe's [masking] for `kind = "whole_word"`; see `MaskingSettings`."""

    whole_words = True

    @property
    def words(self) -> int:
        """See `MaskingSettings`."""
        return 1

    def choose(self, text: Joined, rng: SampleRng) -> np.ndarray:
        """See `MaskingSettings`."""
        firsts, ends = find_words(text)
        sample, place = text.sample[firsts], text.place[firsts]
        order, sums = rng.shuffle("choice", sample, place), ngram_sums(self.words)
        most = np.minimum(_adjacent(firsts, ends) - np.arange(len(firsts)), self.words)
        drawn = rng.uniform("length", sample, place) * sums[most - 1]  # proportional to 1/n, limited to adjacent words
        sizes = 1 + np.searchsorted(sums, drawn, side="right")
        starts, stops, taken, left = firsts.tolist(), ends.tolist(), bytearray(len(firsts)), text.number.tolist()
        for word, size, of in zip(order.tolist(), sizes[order].tolist(), sample[order].tolist(), strict=True):
            budget = left[of]
            if not budget:
                continue
            while size and stops[word + size - 1] - starts[word] > budget:
                size -= 1
            if size and not any(taken[word : word + size]):
                taken[word : word + size] = b"\1" * size
                left[of] -= stops[word + size - 1] - starts[word]
        chosen = np.frombuffer(taken, bool)
        return spans(firsts[chosen], (ends - firsts)[chosen])


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
