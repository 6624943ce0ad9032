"""Predict the hidden tokens from both sides: the masked language model.

In: samples with `positions["hidden"]` and `labels["hidden"]` (see batches/masking.py). Out: a part over the hidden
positions; only these are projected to the vocabulary.

Devlin et al. 2019, section 3.1, task 1. The head is that of the reference code: dense, GELU (or what the layers
have), LayerNorm, then the token embeddings as decoder, with a bias of its own.
"""

from __future__ import annotations

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from unmask.batches.batch import Batch, Sample
from unmask.encoders.encoder import Encoded, Encoder
from unmask.encoders.transformer import TransformerSettings, initialise
from unmask.layers.block import ACTIVATIONS
from unmask.layers.norm import LayerNorm
from unmask.layers.vocabulary import vocabulary_loss
from unmask.objectives.objective import Objective, Part


class MaskedLMSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [objective.masked_lm]."""

    weight: float = 1.0

    def build(self, encoder: TransformerSettings, vocabulary: int) -> MaskedLM:
        """Return the objective with an untrained head."""
        return MaskedLM(encoder, vocabulary, self.weight)


class MaskedLM(Objective):
    """See the module.

    Args:
        encoder: settings of the body that the head sits on.
        vocabulary: its size.
        weight: in the sum of losses.
    """

    at = "hidden"
    needs = frozenset({"hidden"})

    def __init__(self, encoder: TransformerSettings, vocabulary: int, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight
        self.dense = nn.Linear(encoder.width, encoder.embedding_width)
        self.activation = ACTIVATIONS[encoder.head_activation]()
        self.norm = LayerNorm(encoder.embedding_width, encoder.epsilon)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        initialise(self, encoder)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`."""
        return sample.add(counts={name: len(sample.labels["hidden"])})

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return logits over the vocabulary at the hidden positions, (hidden, vocabulary)."""
        return linear(self._rows(encoded, batch), encoder.words.weight, self.bias)

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        rows = self._rows(encoded, batch)
        loss, correct = vocabulary_loss(rows, encoder.words.weight, self.bias, batch.labels["hidden"])
        return Part(loss, {"accuracy": correct})

    def _rows(self, encoded: Encoded, batch: Batch) -> Tensor:
        """Return what the decoder reads, (hidden, width of the embeddings)."""
        rows = encoded.last.index_select(0, batch.positions["hidden"])
        return self.norm(self.activation(self.dense(rows)))

    def forward_flops(self, encoder: Encoder, batch: Batch) -> int:
        """See `Objective`: the dense layer and the decoder, at the hidden positions alone."""
        return 2 * len(batch.positions["hidden"]) * self.dense.out_features * (encoder.width + encoder.vocabulary)
