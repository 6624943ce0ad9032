"""Mask single tokens, as BERT does, and shuffle trigrams of unmasked tokens.

Input: samples. Output: samples as from BERT's masking, with `positions["shuffled"]` (the tokens of shuffled trigrams)
and `labels["shuffled"]` (their original ids).

Wang et al. 2020 (StructBERT), section 2.2.1 and figure 1a: after masking 15 % of the tokens, 5 % of the trigrams of
unmasked tokens are shuffled. The paper does not specify how they are drawn: here a trigram is three adjacent tokens,
none of them masked or special; 5 % of all trigrams are drawn (rounded, at least one), and those that overlap with
another are dropped. All orders of the three are equally probable, including the original one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.masking import MASKED, Begins, Masking, MaskingSettings, TokenMaskingSettings
from unmask.data.batches.rng import SampleRng

SHUFFLED = "shuffled"
"""Name of the positions and labels of shuffled tokens."""
SIZE = 3
"""Tokens per trigram, K in the paper."""


class ShuffledMaskingSettings(TokenMaskingSettings, frozen=True, kw_only=True, tag="shuffled"):
    """The recipe's [masking] for `kind = "shuffled"`; see `MaskingSettings`.

    Attributes:
        shuffle: share of trigrams to shuffle.
    """

    shuffle: float = 0.05

    provides = frozenset({MASKED, SHUFFLED})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.shuffle < 1:
            raise ValueError("shuffle must lie between 0 and 1")

    def build(self, *, vocabulary: int, mask: int, special: frozenset[int], begins: Begins) -> ShuffledMasking:
        """See `MaskingSettings`."""
        return ShuffledMasking(self, self.shuffle, vocabulary=vocabulary, mask=mask, special=special, begins=begins)


class ShuffledMasking(Masking):
    """See the module.

    Args:
        settings: rate and shares.
        shuffle: share of trigrams to shuffle.
        others: further arguments of `Masking`.
    """

    def __init__(self, settings: MaskingSettings, shuffle: float, **others: Any) -> None:
        super().__init__(settings, **others)
        self.shuffle = shuffle

    def __call__(self, samples: Sequence[Sample], rng: SampleRng) -> list[Sample]:
        """Return samples with some of their tokens masked and others shuffled; all randomness comes from `rng`."""
        pairs = zip(samples, super().__call__(samples, rng), strict=True)
        return [self._shuffle(*pair, rng.generator(number)) for number, pair in enumerate(pairs)]

    def _shuffle(self, sample: Sample, masked: Sample, rng: np.random.Generator) -> Sample:
        """Return a masked sample with some of the trigrams of the original one shuffled."""
        free = self.is_ordinary[sample.ids]  # (length,)
        free[masked.positions[MASKED]] = False
        ids, found = masked.ids.copy(), [np.zeros(0, np.int64)]
        for start in self._trigrams(free, rng):
            trigram = np.arange(start, start + SIZE)
            ids[trigram] = sample.ids[rng.permutation(trigram)]
            found.append(trigram)
        indices = np.concatenate(found)  # (shuffled,)
        labels = {SHUFFLED: sample.ids[indices].astype(np.int64)}
        return masked.add(ids=ids, positions={SHUFFLED: indices}, labels=labels)

    def _trigrams(self, free: np.ndarray, rng: np.random.Generator) -> list[int]:
        """Return the start positions of the drawn trigrams, in order and without overlaps."""
        starts = np.flatnonzero(free[:-2] & free[1:-1] & free[2:])
        number = max(1, round(self.shuffle * len(starts)))
        chosen: list[int] = []
        for start in rng.permutation(starts)[:number].tolist():
            if all(abs(start - other) >= SIZE for other in chosen):
                chosen.append(start)
        return sorted(chosen)
