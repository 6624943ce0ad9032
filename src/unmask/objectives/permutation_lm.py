"""Permutation language modeling: predict tokens in a random order, each from those earlier in the order (XLNet).

Input: samples with an order and, as `positions["targets"]` and `labels["targets"]`, the last tokens of it (see
data/batches/permutation_masking.py). Output: a part of the loss with one term per target, read from the query stream.

Yang et al. 2019, arXiv 1906.08237, sections 2.2 to 2.4. The head is a decoder tied to the token embeddings, with a bias
of its own (modeling.py of zihangdai/xlnet, `lm_loss`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unmask.data.batches.batch import TARGETS, Batch
from unmask.nn.encoders.encoder import TOKEN_EMBEDDINGS, TWO_STREAMS, Encoded, Encoder
from unmask.objectives.objective import (
    BuildContext,
    Decoding,
    ObjectiveSettings,
    VocabularyObjective,
    decoder_of,
)


class PermutationLMSettings(ObjectiveSettings, frozen=True, kw_only=True):
    """The recipe's [objective.permutation_lm]."""

    requires = frozenset({TARGETS, TWO_STREAMS, TOKEN_EMBEDDINGS})

    def build(self, context: BuildContext) -> PermutationLM:
        """See `ObjectiveSettings`."""
        return PermutationLM(context.vocabulary)


class PermutationLM(VocabularyObjective):
    """See the module.

    Args:
        vocabulary: number of token ids.
    """

    at = TARGETS

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    @property
    def token_bias(self) -> nn.Parameter:
        """See `VocabularyObjective`."""
        return self.bias

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`: no token, only queries."""
        return batch.positions[TARGETS][:0]

    def project(self, encoder: Encoder, rows: Tensor) -> Decoding:
        """See `VocabularyObjective`."""
        return Decoding(rows, decoder_of(encoder), self.bias)

    def decoding(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Decoding:
        """See `Objective`; the rows are the query stream, (targets, width)."""
        assert encoded.queries is not None, "the masking gives targets"
        return self.project(encoder, encoded.queries)
