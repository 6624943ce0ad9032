"""Next sentence prediction: classify whether the second text follows the first.

Input: samples with the label `next_sentence` (0: it follows, 1: it is from another document; see
data/batches/sentence_pairs.py). Output: a part of the loss with one term per sample.

Devlin et al. 2019, arXiv 1810.04805, section 3.1, task 2: a softmax layer on the pooled [CLS] vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from torch import Tensor, nn

from unmask.data.batches.batch import Batch, Sample
from unmask.nn.encoders.encoder import POOLER, Encoded, Encoder, WithPooler, text_rows, text_vectors
from unmask.objectives.objective import BuildContext, Objective, ObjectiveSettings, Part, classify


class NextSentenceSettings(ObjectiveSettings, frozen=True, kw_only=True):
    """The recipe's [objective.next_sentence]."""

    requires = frozenset({"next_sentence", POOLER})

    def build(self, context: BuildContext) -> NextSentence:
        """See `ObjectiveSettings`."""
        return NextSentence(context)


class NextSentence(Objective):
    """See the module.

    Args:
        context: the body below the head.
    """

    at = "summary"
    label = "next_sentence"

    def __init__(self, context: BuildContext) -> None:
        super().__init__()
        self.out = nn.Linear(context.head.width, 2)
        context.head.init(self)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`."""
        return sample.add(counts={name: 1})

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`."""
        return text_rows(encoder, batch)

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the logits of (follows, from another document), (sequences, 2)."""
        rows = text_vectors(encoder, encoded.last, batch)  # (sequences, width)
        return self.out(cast(WithPooler, encoder).pooler(rows))

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        return classify(self.predict(encoder, encoded, batch), batch.labels[self.label])

    def baseline(self, name: str, batches: Sequence[Batch], token: int) -> Mapping[str, float]:
        """See `Objective`: a constant prediction is correct for half of the samples."""
        return {f"{name}_accuracy": 0.5}
