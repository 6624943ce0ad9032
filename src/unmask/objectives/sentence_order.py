"""Sentence order prediction: classify whether two consecutive texts are in their original order.

Input: samples with the label `sentence_order` (0: in order, 1: swapped; see batches/sentence_pairs.py). Output: a part
of the loss with one term per sample.

Lan et al. 2020, arXiv 1909.11942 (ALBERT), section 3.1: the head is that of next sentence prediction, whose negative
examples can be recognized by topic alone.
"""

from __future__ import annotations

from unmask.nn.encoders.encoder import POOLER
from unmask.objectives.next_sentence import NextSentence
from unmask.objectives.objective import BuildContext, ObjectiveSettings


class SentenceOrderSettings(ObjectiveSettings, frozen=True, kw_only=True):
    """The recipe's [objective.sentence_order]."""

    requires = frozenset({"sentence_order", POOLER})

    def build(self, context: BuildContext) -> SentenceOrder:
        """See `ObjectiveSettings`."""
        return SentenceOrder(context)


class SentenceOrder(NextSentence):
    """See the module; `predict` returns the logits of (in order, swapped), (sequences, 2)."""

    label = "sentence_order"
