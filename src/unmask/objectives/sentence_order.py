"""Tell whether two consecutive texts stand in their order: sentence order prediction.

In: samples with the label `sentence_order` (0: in order, 1: swapped; see batches/sentence_pairs.py). Out: a part with
one term a sample.

Lan et al. 2020 (ALBERT), section 3.1: the same head as next sentence prediction, whose random texts can be told by
their topic alone.
"""

from __future__ import annotations

import msgspec

from unmask.encoders.transformer import TransformerSettings
from unmask.objectives.next_sentence import NextSentence


class SentenceOrderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [objective.sentence_order]."""

    weight: float = 1.0

    def build(self, encoder: TransformerSettings, vocabulary: int) -> SentenceOrder:
        """Return the objective with an untrained head."""
        return SentenceOrder(encoder, self.weight)


class SentenceOrder(NextSentence):
    """See the module; `predict` gives logits (in order, swapped), (sequences, 2)."""

    label = "sentence_order"
    needs = frozenset({label})
