"""Tell whether the second text follows the first: next sentence prediction.

In: samples with the label `next_sentence` (0: it follows, 1: it is from another document; see
batches/sentence_pairs.py). Out: a part with one term a sample.

Devlin et al. 2019, section 3.1, task 2: a softmax layer over the pooled [CLS].
"""

from __future__ import annotations

import msgspec
from torch import Tensor, nn

from unmask.batches.batch import Batch, Sample
from unmask.encoders.encoder import Encoded, Encoder
from unmask.encoders.transformer import TransformerSettings, initialise
from unmask.objectives.objective import Objective, Part, classify


class NextSentenceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipe's [objective.next_sentence]."""

    weight: float = 1.0

    def build(self, encoder: TransformerSettings, vocabulary: int) -> NextSentence:
        """Return the objective with an untrained head."""
        return NextSentence(encoder, self.weight)


class NextSentence(Objective):
    """See the module.

    Args:
        encoder: settings of the body that the head sits on.
        weight: in the sum of losses.
    """

    at = "summary"
    label = "next_sentence"
    needs = frozenset({label})

    def __init__(self, encoder: TransformerSettings, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight
        self.out = nn.Linear(encoder.width, 2)
        initialise(self, encoder)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`."""
        return sample.add(counts={name: 1})

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return logits (follows, from elsewhere), (sequences, 2)."""
        return self.out(encoder.pool(encoded.last.index_select(0, batch.positions["summary"])))

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        return classify(self.predict(encoder, encoded, batch), batch.labels[self.label])

    def forward_flops(self, encoder: Encoder, batch: Batch) -> int:
        """See `Objective`: the pooler and the softmax layer, once a sequence."""
        return 2 * len(batch.positions["summary"]) * encoder.width * (encoder.width + self.out.out_features)
