"""Word structural objective: predict the original tokens of shuffled trigrams.

Input: samples with `positions["shuffled"]` and `labels["shuffled"]` (see shuffled_masking.py). Output: a part of the
loss with one term per token of a shuffled trigram; only these are projected to the vocabulary.

Wang et al. 2020 (StructBERT), section 2.2.1: a softmax over the vocabulary predicts the token of each of the three
positions, trained jointly with the masked language model and with the same weight. The head has the form of BERT's
masked-LM head, with separate weights; the paper does not specify whether the two heads share their weights.
"""

from __future__ import annotations

from unmask.nn.encoders.encoder import BOTH_SIDES, TOKEN_EMBEDDINGS
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext, ObjectiveSettings
from unmask_structbert.shuffled_masking import SHUFFLED


class WordOrderSettings(ObjectiveSettings, frozen=True, kw_only=True):
    """The recipe's [objective.word_order]."""

    requires = frozenset({SHUFFLED, BOTH_SIDES, TOKEN_EMBEDDINGS})

    def build(self, context: BuildContext) -> WordOrder:
        """See `ObjectiveSettings`."""
        return WordOrder(context)


class WordOrder(MaskedLM):
    """See the module; the labels and the positions of the predictions are those of the name `at`."""

    at = SHUFFLED
