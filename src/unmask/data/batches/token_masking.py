"""Masking of individual tokens, as in BERT (Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

import numpy as np

from unmask.data.batches.masking import Begins, Masking, MaskingSettings


class TokenMaskingSettings(MaskingSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="token"):
    """The recipe's [masking] for `kind = "token"`; see `MaskingSettings`."""

    def build(self, *, vocabulary: int, mask: int, special: frozenset[int], begins: Begins) -> TokenMasking:
        """See `MaskingSettings`."""
        return TokenMasking(self, vocabulary=vocabulary, mask=mask, special=special)


class TokenMasking(Masking):
    """See the module."""

    def choose(self, ids: np.ndarray, candidates: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
        """See `Masking`."""
        return np.sort(rng.choice(candidates, number, replace=False))
