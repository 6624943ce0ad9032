"""Span boundary objective: predict each token of a masked span from the tokens just outside it and its position.

Input: samples with `positions["masked"]` and `labels["masked"]`; adjacent masked tokens form a span (see
data/batches/span_masking.py). Output: a part of the loss with one term per token of a span.

Joshi et al. 2020, arXiv 1907.10529 (SpanBERT), section 3.2: the boundary vectors and an embedding of the position
within the span pass through two layers, each with GELU and LayerNorm; the decoder is tied to the token embeddings. As
in its code (models/pair_bert.py), the position embeddings are 200 wide, the decoder has a separate bias, and only the
first 15 tokens of a span are predicted. Differences: the boundary of a span at an end of the text is [CLS] or [SEP];
where a text begins with no such token, as XLNet's do, a span at its beginning is not predicted.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from unmask.data.batches.batch import Batch, Sample
from unmask.data.batches.masking import MASKED
from unmask.data.batches.span_masking import span_indices
from unmask.nn.encoders.encoder import BOTH_SIDES, TOKEN_EMBEDDINGS, Encoded, Encoder
from unmask.nn.layers.block import ACTIVATIONS
from unmask.nn.layers.embeddings import look_up
from unmask.nn.layers.linear import Linear
from unmask.nn.layers.norm import LayerNorm
from unmask.nn.layers.vocabulary import vocabulary_loss
from unmask.objectives.objective import BuildContext, Objective, ObjectiveSettings, Part, decoder_of


class SpanBoundarySettings(ObjectiveSettings, frozen=True, kw_only=True):
    """The recipe's [objective.span_boundary].

    Attributes:
        places: the maximum number of predicted tokens of a span, from its start.
        place_width: width of the embeddings of positions within the span.
    """

    places: int = 15
    place_width: int = 200

    requires = frozenset({MASKED, BOTH_SIDES, TOKEN_EMBEDDINGS})

    def __post_init__(self) -> None:
        if self.places < 1 or self.place_width < 1:
            raise ValueError("places and place_width must be at least 1")

    def build(self, context: BuildContext) -> SpanBoundary:
        """See `ObjectiveSettings`."""
        return SpanBoundary(self, context)

    @classmethod
    def of_head(cls, tensors: Mapping[str, Tensor], width: int) -> SpanBoundarySettings:
        """See `ObjectiveSettings`; both settings follow from the table of positions."""
        if "places.weight" not in tensors:
            return cls()
        places, place_width = tensors["places.weight"].shape
        return cls(places=places, place_width=place_width)


class SpanBoundary(Objective):
    """See the module.

    Args:
        settings: settings from the recipe.
        context: the body below the head.
    """

    at = "span_left"

    def __init__(self, settings: SpanBoundarySettings, context: BuildContext) -> None:
        super().__init__()
        head, narrow = context.head, context.decoder_width
        self.places = nn.Embedding(settings.places, settings.place_width)
        self.first = Linear(2 * head.width + settings.place_width, head.width)
        self.first_norm = LayerNorm(head.width, head.epsilon)
        self.second = Linear(head.width, narrow)
        self.second_norm = LayerNorm(narrow, head.epsilon)
        self.activation = ACTIVATIONS[head.activation]()
        self.bias = nn.Parameter(torch.zeros(context.vocabulary))
        head.init(self)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`; finds the spans and their boundary tokens."""
        masked = sample.positions["masked"]
        spans = span_indices(masked)
        first = np.flatnonzero(np.diff(spans, prepend=-1))  # (spans,) index of the masked token at which each begins
        last = np.append(first[1:], len(masked))[: len(first)] - 1
        left, right = (masked[first] - 1)[spans], (masked[last] + 1)[spans]  # (masked,)
        place = masked - left - 1  # (masked,) position within the span
        enclosed = (left >= 0) & (right < len(sample))
        near = np.flatnonzero(enclosed & (place < self.places.num_embeddings))
        return sample.add(
            positions={"span_left": left[near], "span_right": right[near]},
            labels={"span_place": place[near], "span_gold": sample.labels["masked"][near]},
            counts={name: len(near)},
        )

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`."""
        return torch.cat([batch.positions["span_left"], batch.positions["span_right"]]).unique()  # type: ignore[no-untyped-call]

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return logits over the vocabulary for each target, (targets, vocabulary)."""
        return linear(self._rows(encoded, batch), decoder_of(encoder), self.bias)

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        rows = self._rows(encoded, batch)
        loss, correct = vocabulary_loss(rows, decoder_of(encoder), self.bias, batch.labels["span_gold"])
        return Part(loss, {"accuracy": correct})

    def _rows(self, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the input of the decoder, (targets, width of the embeddings)."""
        left, right = (encoded.last.index_select(0, batch.positions[f"span_{side}"]) for side in ("left", "right"))
        place = look_up(self.places.weight, batch.labels["span_place"])
        rows = self.first_norm(self.activation(self.first(torch.cat([left, right, place], 1))))  # (targets, width)
        return self.second_norm(self.activation(self.second(rows)))
