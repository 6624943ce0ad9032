"""No masking: samples for left-to-right language models."""

from __future__ import annotations

from typing import ClassVar

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.batches.masking import Begins, Masker

WHOLE_TEXT = "unmasked text"


class NoMaskingSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="none"
):
    """The recipe's [masking] for `kind = "none"`."""

    gives: ClassVar[frozenset[str]] = frozenset({WHOLE_TEXT})
    words: ClassVar[int] = 0
    whole_words: ClassVar[bool] = False
    keeps_all: ClassVar[bool] = False  # no token is to be predicted

    def rate_at(self, done: float) -> float:
        """See `MaskingSettings`."""
        return 0.0

    def check_length(self, length: int, remember: int | None) -> None:
        """See `MaskingSettings`."""

    def build(self, *, vocabulary: int, mask: int, special: frozenset[int], begins: Begins) -> Masker:
        """See `MaskingSettings`."""
        return identity


def identity(sample: Sample, rng: np.random.Generator) -> Sample:
    """Return the sample unchanged."""
    return sample
