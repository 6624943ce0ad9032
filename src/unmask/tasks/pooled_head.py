"""Base of the heads that read a whole text: dropout and one linear layer over the pooled [CLS].

Devlin et al. 2019, section 4.1. RoBERTa and ELECTRA also have dropout before the pooler (`RobertaClassificationHead` in
transformers, as in fairseq). ELECTRA's reference implementation has no pooler here, only a linear layer on [CLS], but
published fine-tuned models have the head of transformers (`ElectraClassificationHead`); this one is compatible with it.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from unmask.data.batches.batch import GROUP, Batch, Sample
from unmask.nn.encoders.encoder import POOLER, Encoded, Encoder, HeadSpec, WithPooler, text_rows, text_vectors
from unmask.nn.layers.dropout import Dropout
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
        """See `Objective`: one loss term per sample."""
        return sample.add(counts={name: 1})

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`."""
        return text_rows(encoder, batch)

    def vectors(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the pooled vectors, (sequences, width)."""
        rows = text_vectors(encoder, encoded.last, batch)  # (sequences, width)
        return cast(WithPooler, encoder).pool(self.below(rows)) if POOLER in encoder.gives else rows

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the outputs of the linear layer, (vectors, outputs)."""
        return self.out(self.dropout(self.vectors(encoder, encoded, batch)))

    def forward_flops(self, encoder: Encoder, batch: Batch) -> int:
        """See `Objective`: the pooler and the linear layer, once per sequence."""
        return 2 * len(batch.positions["summary"]) * encoder.width * (encoder.width + self.out.out_features)


class TextHead(PooledHead):
    """A head that reads texts of one or several sequences (`Sample.parts`): their pooled vectors are averaged."""

    def vectors(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the mean vector of each text, (texts, width)."""
        rows = super().vectors(encoder, encoded, batch)  # (sequences, width)
        if GROUP not in batch.labels:
            return rows
        members = _members(batch).float()  # (texts, sequences)
        return (members / members.sum(1, keepdim=True) @ rows.float()).to(rows.dtype)

    def gold(self, batch: Batch, name: str) -> Tensor:
        """Return the labels of each text, which all its sequences have, (texts, any number)."""
        labels = batch.labels[name]
        if not len(labels):  # no sequence of a micro-batch has a target
            return labels[:, None]
        labels = labels.view(len(batch.keys), -1)  # (sequences, any number)
        return labels.index_select(0, _members(batch).byte().argmax(1)) if GROUP in batch.labels else labels


def _members(batch: Batch) -> Tensor:
    """Return which sequences of a batch belong to which sample, (samples, sequences) bool."""
    group = batch.labels[GROUP]  # (sequences,)
    samples = sum(key[-1] == 0 for key in batch.keys)  # the first sequence of each: known on the host
    return group == torch.arange(samples, device=group.device)[:, None]
