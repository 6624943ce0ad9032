"""Word structural objective: predict the original tokens of shuffled trigrams.

Input: samples with `positions["shuffled"]` and `labels["shuffled"]` (see shuffled_masking.py). Output: a part of the
loss with one term per token of a shuffled trigram; only these are projected to the vocabulary.

Wang et al. 2020 (StructBERT), section 2.2.1: a softmax over the vocabulary predicts the token of each of the three
positions, trained jointly with the masked language model and with the same weight. The head has the form of BERT's
masked-LM head, with separate weights; the paper does not specify whether the two heads share their weights.
"""

from __future__ import annotations

import torch
from torch import nn

from unmask.data.batches.batch import Batch, Sample
from unmask.nn.encoders.encoder import BOTH_SIDES, TOKEN_EMBEDDINGS, Encoded, Encoder
from unmask.nn.layers.block import ACTIVATIONS
from unmask.nn.layers.norm import LayerNorm
from unmask.objectives.objective import BuildContext, Decoding, ObjectiveSettings, VocabularyObjective, decoder_of
from unmask_structbert.shuffled_masking import SHUFFLED


class WordOrderSettings(ObjectiveSettings, frozen=True, kw_only=True):
    """The recipe's [objective.word_order]."""

    requires = frozenset({SHUFFLED, BOTH_SIDES, TOKEN_EMBEDDINGS})

    def build(self, context: BuildContext) -> WordOrder:
        """See `ObjectiveSettings`."""
        return WordOrder(context)


class WordOrder(VocabularyObjective):
    """See the module.

    Args:
        context: the body below the head.
    """

    at = SHUFFLED

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        head, narrow = context.head, context.decoder_width
        self.dense = nn.Linear(head.width, narrow)
        self.activation = ACTIVATIONS[head.lm_activation]()
        self.norm = LayerNorm(narrow, head.epsilon)
        self.bias = nn.Parameter(torch.zeros(context.vocabulary))
        head.init(self)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`: one term per token of a shuffled trigram."""
        return sample.add(counts={name: len(sample.labels[SHUFFLED])})

    def decoding(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Decoding:
        """See `Objective`; the rows are those of the shuffled positions."""
        rows = encoded.last.index_select(0, batch.positions[SHUFFLED])  # (shuffled, width)
        return Decoding(self.norm(self.activation(self.dense(rows))), decoder_of(encoder), self.bias)
