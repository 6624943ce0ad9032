"""Masked language modeling: predict the masked tokens from their context on both sides.

Input: samples with `positions["masked"]` and `labels["masked"]` (see batches/masking.py). Output: a part of the loss
with one term per masked token; only these are projected to the vocabulary.

Devlin et al. 2019, arXiv 1810.04805, section 3.1, task 1. The head is that of the reference code: a dense layer, GELU
(or the activation of the layers), LayerNorm, then a decoder tied to the token embeddings, with a separate bias. In
families whose decoder is not tied (`HeadSpec.untied`) it is the decoder alone.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unmask.data.batches.batch import Batch
from unmask.data.batches.masking import MASKED
from unmask.nn.encoders.encoder import BOTH_SIDES, TOKEN_EMBEDDINGS, Encoder
from unmask.nn.layers.block import ACTIVATIONS
from unmask.nn.layers.linear import Linear
from unmask.nn.layers.norm import LayerNorm
from unmask.objectives.objective import (
    BuildContext,
    Decoding,
    ObjectiveSettings,
    VocabularyObjective,
    decoder_of,
)


class MaskedLMSettings(ObjectiveSettings, frozen=True, kw_only=True):
    """The recipe's [objective.masked_lm]."""

    requires = frozenset({MASKED, BOTH_SIDES, TOKEN_EMBEDDINGS})

    def build(self, context: BuildContext) -> MaskedLM:
        """See `ObjectiveSettings`."""
        return MaskedLM(context)


class MaskedLM(VocabularyObjective):
    """See the module; subclasses predict the tokens at other positions, `at`.

    Args:
        context: the body below the head.
    """

    at = MASKED

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        head, narrow = context.head, context.decoder_width
        self.tied = not head.untied
        self.decoder = Linear(head.width, context.vocabulary, bias=head.decoder_bias) if head.untied else None
        if self.decoder is not None:
            head.init(self)
            return
        self.dense = Linear(head.width, narrow, bias=head.dense_bias)
        self.activation = ACTIVATIONS[head.lm_activation]()
        self.norm = LayerNorm(narrow, head.epsilon, bias=head.dense_bias)
        self.bias = nn.Parameter(torch.zeros(context.vocabulary))
        head.init(self)

    @property
    def token_bias(self) -> nn.Parameter | None:
        """See `VocabularyObjective`."""
        return self.bias if self.decoder is None else self.decoder.bias

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`."""
        return batch.positions[self.at]

    def project(self, encoder: Encoder, rows: Tensor) -> Decoding:
        """See `VocabularyObjective`; the factors are (targets, width of the embeddings), or its own decoder's."""
        if self.decoder is not None:
            weight, bias = self.decoder.weight, self.decoder.bias
            return Decoding(rows, weight, weight.new_zeros(len(weight)) if bias is None else bias)
        return Decoding(self.norm(self.activation(self.dense(rows))), decoder_of(encoder), self.bias)
