"""Causal language modeling: predict each token from the preceding ones.

Input: unmasked samples. Output: a part of the loss with one term per token except the first of each sequence.

Radford et al. 2018 (GPT), equation 1; beside the loss of a task it is the auxiliary one of equation 5. The decoder is
the table of token embeddings, without further layers (train.py of openai/finetune-transformer-lm). Differences: the
loss is the mean over all tokens of a step, whereas the reference code weights the means of all sequences equally; the
layouts put special tokens around texts, which are predicted too, whereas the paper pretrains on contiguous text without
any.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from unmask.data.batches.batch import Sample
from unmask.data.batches.masking import WHOLE_TEXT
from unmask.nn.encoders.encoder import LEFT_TO_RIGHT, TOKEN_EMBEDDINGS, Encoder
from unmask.objectives.objective import (
    BuildContext,
    Decoding,
    ObjectiveSettings,
    VocabularyObjective,
    decoder_of,
)


class CausalLMSettings(ObjectiveSettings, frozen=True, kw_only=True):
    """The recipe's [objective.causal_lm]."""

    requires = frozenset({WHOLE_TEXT, LEFT_TO_RIGHT, TOKEN_EMBEDDINGS})

    def build(self, context: BuildContext) -> CausalLM:
        """See `ObjectiveSettings`; the objective has no parameters."""
        return CausalLM()


class CausalLM(VocabularyObjective):
    """See the module: the label at a position is the token after it."""

    at = "next"

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`; each token except the first is a target, predicted at the position before it."""
        return sample.add(
            positions={self.at: np.arange(len(sample) - 1)},
            labels={self.at: sample.ids[1:].astype(np.int64)},
            counts={name: len(sample) - 1},
        )

    def project(self, encoder: Encoder, rows: Tensor) -> Decoding:
        """See `VocabularyObjective`."""
        decoder = decoder_of(encoder)
        return Decoding(rows, decoder, decoder.new_zeros(encoder.vocabulary))
