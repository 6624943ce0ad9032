"""Base of the heads that read a whole text: dropout and one linear layer over the pooled [CLS].

Devlin et al. 2019, section 4.1. RoBERTa and ELECTRA also have dropout before the pooler (`RobertaClassificationHead` in
transformers, as in fairseq). ELECTRA's reference implementation has no pooler here, only a linear layer on [CLS], but
published fine-tuned models have the head of transformers (`ElectraClassificationHead`); this one is compatible with it.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from unmask.batches.batch import Batch, Sample
from unmask.encoders.encoder import POOLER, Encoded, Encoder, HeadSpec, WithPooler, text_rows, text_vectors
from unmask.layers.dropout import Dropout
from unmask.objectives.objective import Objective


class PooledHead(Objective):
    """Dropout and a linear layer over the pooled vector. Subclasses define `needs` and `score`.

    Args:
        spec: the properties of the body under the head.
        outputs: number of outputs of the linear layer.
        bias: whether the linear layer has a bias.
    """

    at = "summary"

    def __init__(self, spec: HeadSpec, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.dropout = Dropout(spec.dropout)
        self.below = Dropout(spec.pooler_dropout)
        self.out = nn.Linear(spec.width, outputs, bias=bias)
        spec.init(self)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`: one loss term per sequence."""
        return sample.add(counts={name: 1})

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`."""
        return text_rows(encoder, batch)

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the outputs of the linear layer, (sequences, outputs)."""
        rows = text_vectors(encoder, encoded.last, batch)  # (sequences, width)
        if POOLER in encoder.gives:
            rows = cast(WithPooler, encoder).pool(self.below(rows))
        return self.out(self.dropout(rows))

    def forward_flops(self, encoder: Encoder, batch: Batch) -> int:
        """See `Objective`: the pooler and the linear layer, once per sequence."""
        return 2 * len(batch.positions["summary"]) * encoder.width * (encoder.width + self.out.out_features)
