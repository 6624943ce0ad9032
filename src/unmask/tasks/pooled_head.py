"""One linear layer over the pooled [CLS], with dropout before it: what heads of whole texts have in common.

Devlin et al. 2019, section 4.1. RoBERTa and ELECTRA have dropout before the pooler too (`RobertaClassificationHead` in
transformers, as in fairseq). ELECTRA's own program has no pooler here at all, but a linear layer on [CLS]; the
fine-tuned models that are published have transformers' (`ElectraClassificationHead`), and can be read and written so.
"""

from __future__ import annotations

from torch import Tensor, nn

from unmask.batches.batch import Batch, Sample
from unmask.encoders.encoder import Encoded, Encoder
from unmask.encoders.stored import Stored
from unmask.encoders.transformer import TransformerSettings, initialise
from unmask.layers.dropout import Dropout
from unmask.objectives.objective import Objective


class PooledHead(Objective):
    """Subclasses say what they need, and score.

    Args:
        encoder: settings of the body that the head sits on.
        outputs: of the linear layer.
        bias: whether it has one.
    """

    at = "summary"

    def __init__(self, encoder: TransformerSettings, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.dropout = Dropout(encoder.before_last)
        self.below = self.dropout if encoder.pooler_in_head else Dropout(0.0)
        self.out = nn.Linear(encoder.width, outputs, bias=bias)
        initialise(self, encoder)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`: a term for each sequence."""
        return sample.add(counts={name: 1})

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the layer's outputs, (sequences, outputs)."""
        rows = encoded.last.index_select(0, batch.positions["summary"])  # (sequences, width)
        if not isinstance(encoder, Stored):  # whose rows are pooled already
            rows = encoder.pool(self.below(rows))
        return self.out(self.dropout(rows))

    def forward_flops(self, encoder: Encoder, batch: Batch) -> int:
        """See `Objective`: the pooler and the linear layer, once a sequence."""
        return 2 * len(batch.positions["summary"]) * encoder.width * (encoder.width + self.out.out_features)
