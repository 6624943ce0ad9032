"""Predict each token from those before it: the causal language model.

In: samples as they are, nothing hidden. Out: a part over all tokens but each sequence's first.

Radford et al. 2018 (GPT), equation 1; beside a task's own loss it is the auxiliary one of its equation 5. The decoder
is the table of token embeddings, without anything else (train.py of openai/finetune-transformer-lm). Different from it:
the loss is the mean over all tokens of a step; there each sequence's mean weighs the same. The layouts put special
tokens around texts, which are predicted too; the paper pretrains on runs of text without any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor
from torch.nn.functional import linear

from unmask.batches.batch import Batch, Sample
from unmask.batches.no_masking import WHOLE_TEXT
from unmask.encoders.encoder import LEFT_TO_RIGHT, TOKEN_EMBEDDINGS, Encoded, Encoder
from unmask.layers.vocabulary import vocabulary_loss
from unmask.objectives.objective import (
    BuildContext,
    Objective,
    ObjectiveSettings,
    Part,
    accuracy_of,
    decoder_of,
    most_frequent,
)


class CausalLMSettings(ObjectiveSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [objective.causal_lm]."""

    asks = frozenset({WHOLE_TEXT, LEFT_TO_RIGHT, TOKEN_EMBEDDINGS})

    def build(self, context: BuildContext) -> CausalLM:
        """See `ObjectiveSettings`; it has no weights of its own."""
        return CausalLM(self.weight)


class CausalLM(Objective):
    """See the module.

    Args:
        weight: in the sum of losses.
    """

    at = "before"

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`; each token but the first is a target, read where the one before it stands."""
        return sample.add(
            positions={self.at: np.arange(len(sample) - 1)},
            labels={"next": sample.ids[1:].astype(np.int64)},
            counts={name: len(sample) - 1},
        )

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return logits over the vocabulary for each next token, (targets, vocabulary)."""
        return linear(self._rows(encoded, batch), decoder_of(encoder))

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        none = decoder_of(encoder).new_zeros(encoder.vocabulary)
        loss, correct = vocabulary_loss(self._rows(encoded, batch), decoder_of(encoder), none, batch.labels["next"])
        return Part(loss, {"accuracy": correct})

    def _rows(self, encoded: Encoded, batch: Batch) -> Tensor:
        """Return what the decoder reads, (targets, width)."""
        return encoded.last.index_select(0, batch.positions[self.at])

    def baseline(self, name: str, batches: Sequence[Batch], token: int) -> Mapping[str, float]:
        """See `Objective`."""
        return accuracy_of(token, name, "next", batches)

    def notes(self, name: str, metrics: Mapping[str, float], baseline: Mapping[str, float]) -> Sequence[str]:
        """See `Objective`."""
        return most_frequent("next", baseline.get(f"{name}_accuracy"))

    def forward_flops(self, encoder: Encoder, batch: Batch) -> int:
        """See `Objective`: the decoder, at every token but one a sequence."""
        return 2 * len(batch.positions[self.at]) * encoder.width * encoder.vocabulary
