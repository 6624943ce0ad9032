"""Masking of whole words, single or several in a row.

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

from typing import Any

import numpy as np

from unmask.data.batches.masking import Begins, Masking, MaskingSettings, find_words


class NgramMaskingSettings(MaskingSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ngram"):
    """The recipe's [masking] for `kind = "ngram"`; see `MaskingSettings`.

    Attributes:
        longest: maximum number of consecutive words masked at once.
    """

    longest: int = 3

    whole_words = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.longest < 1:
            raise ValueError("longest must be at least 1")

    @property
    def words(self) -> int:
        """See `MaskingSettings`."""
        return self.longest

    def build(self, *, vocabulary: int, mask: int, special: frozenset[int], begins: Begins) -> NgramMasking:
        """See `MaskingSettings`."""
        return NgramMasking(self, self.longest, vocabulary=vocabulary, mask=mask, special=special, begins=begins)


class WholeWordMaskingSettings(
    MaskingSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="whole_word"
):
    """The recipe's [masking] for `kind = "whole_word"`; see `MaskingSettings`."""

    whole_words = True

    @property
    def words(self) -> int:
        """See `MaskingSettings`."""
        return 1

    def build(self, *, vocabulary: int, mask: int, special: frozenset[int], begins: Begins) -> NgramMasking:
        """See `MaskingSettings`."""
        return NgramMasking(self, 1, vocabulary=vocabulary, mask=mask, special=special, begins=begins)


class NgramMasking(Masking):
    """See the module.

    Args:
        settings: rate and shares.
        longest: maximum number of consecutive words masked at once.
        others: as for `Masking`.
    """

    def __init__(self, settings: MaskingSettings, longest: int, **others: Any) -> None:
        super().__init__(settings, **others)
        self.sums = np.cumsum(1 / np.arange(1, longest + 1))

    def choose(self, ids: np.ndarray, candidates: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
        """See `Masking`."""
        firsts, ends = find_words(ids, candidates, self.begins)
        if not len(firsts):
            return firsts
        starts, stops, taken = firsts.tolist(), ends.tolist(), [False] * len(firsts)
        budget = number
        for word, uniform in zip(rng.permutation(len(starts)).tolist(), rng.random(len(starts)).tolist(), strict=True):
            if not budget:
                break
            size = self._draw_size(word, uniform, starts, stops)
            while size and stops[word + size - 1] - starts[word] > budget:
                size -= 1
            if size and not any(taken[word : word + size]):
                taken[word : word + size] = [True] * size
                budget -= stops[word + size - 1] - starts[word]
        found = [np.arange(starts[word], stops[word]) for word, chosen in enumerate(taken) if chosen]
        return np.concatenate(found) if found else firsts[:0]

    def _draw_size(self, word: int, uniform: float, starts: list[int], stops: list[int]) -> int:
        """Draw the size n of an n-gram that begins with a word, proportional to 1/n, limited to adjacent words."""
        most = 1
        while most < len(self.sums) and word + most < len(starts) and starts[word + most] == stops[word + most - 1]:
            most += 1
        return 1 + int(np.searchsorted(self.sums[:most], uniform * self.sums[most - 1], side="right"))
