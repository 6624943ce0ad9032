"""One linear layer over the pooled [CLS], with dropout before it: what heads of whole texts have in common.

Devlin et al. 2019, section 4.1. RoBERTa and ELECTRA have dropout before the pooler too (`RobertaClassificationHead` in
transformers, as in fairseq). ELECTRA's own program has no pooler here at all, but a linear layer on [CLS]; the
fine-tuned models that are published have transformers' (`ElectraClassificationHead`), and can be read and written so.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from unmask.batches.batch import Batch, Sample
from unmask.encoders.encoder import POOLER, Encoded, Encoder, HeadSpec, WithPooler
from unmask.layers.dropout import Dropout
from unmask.objectives.objective import Objective


class PooledHead(Objective):
    """Subclasses say what they need, and score.

    Args:
        spec: of the body that the head sits on.
        outputs: of the linear layer.
        bias: whether it has one.
    """

    at = "summary"

    def __init__(self, spec: HeadSpec, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.dropout = Dropout(spec.dropout)
        self.below = Dropout(spec.pooler_dropout)
        self.out = nn.Linear(spec.width, outputs, bias=bias)
        spec.init(self)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`: a term for each sequence."""
        return sample.add(counts={name: 1})

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the layer's outputs, (sequences, outputs)."""
        rows = encoded.last.index_select(0, batch.positions["summary"])  # (sequences, width)
        if POOLER in encoder.gives:
            rows = cast(WithPooler, encoder).pool(self.below(rows))
        return self.out(self.dropout(rows))

    def forward_flops(self, encoder: Encoder, batch: Batch) -> int:
        """See `Objective`: the pooler and the linear layer, once a sequence."""
        return 2 * len(batch.positions["summary"]) * encoder.width * (encoder.width + self.out.out_features)
