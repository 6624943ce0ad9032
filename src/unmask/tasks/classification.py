"""Classify a text: [CLS], one softmax layer, and every parameter tuned.

In: labelled rows. Out: samples, the objective with its head, predictions.

Devlin et al. 2019, section 4.1: the pooled vector of [CLS], dropout, a new layer, cross-entropy. Truncation keeps the
beginning of a text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor, nn

from unmask.batches.batch import Batch, Sample
from unmask.batches.frame import Frame
from unmask.encoders.encoder import Encoded, Encoder
from unmask.encoders.transformer import TransformerSettings, initialise
from unmask.errors import UserError
from unmask.layers.dropout import Dropout
from unmask.objectives.objective import Objective, Part, classify
from unmask.tasks.labelled_file import Row
from unmask.tokenizers.tokenizer import Tokenizer

COLUMNS = ("text", "label")


class Classification(Objective):
    """The head and its loss.

    Args:
        encoder: settings of the body that the head sits on.
        num_labels: classes of the softmax layer.
        dropout: before it.
    """

    needs = frozenset({"classification"})

    def __init__(self, encoder: TransformerSettings, num_labels: int) -> None:
        super().__init__()
        self.dropout = Dropout(encoder.dropout)
        self.out = nn.Linear(encoder.width, num_labels)
        initialise(self, encoder.deviation)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`."""
        return sample.add(counts={name: 1})

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return logits, (sequences, labels)."""
        rows = encoder.pool(encoded.last.index_select(0, batch.positions["summary"]))  # (sequences, width)
        return self.out(self.dropout(rows))

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        return classify(self.predict(encoder, encoded, batch), batch.labels["classification"])

    def forward_flops(self, encoder: Encoder, batch: Batch) -> int:
        """See `Objective`: the pooler and the softmax layer, once a sequence."""
        return 2 * len(batch.positions["summary"]) * encoder.width * (encoder.width + self.out.out_features)


def samples(tokenizer: Tokenizer, texts: Sequence[str], length: int, gold: Sequence[int] | None = None) -> list[Sample]:
    """Return a sample for each text, its key its number; `gold` are numbers of labels."""
    frame = Frame(tokenizer.cls, tokenizer.sep)
    room = frame.room(length, texts=1)
    made = []
    for number, ids in enumerate(tokenizer.encode_many(texts)):
        sample = frame.wrap(ids[:room])
        labels = {} if gold is None else {"classification": np.array([gold[number]], np.int64)}
        made.append(sample.add(labels=labels).named((0, number)))
    return made


def label_names(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the labels of training rows: by value where all are integers, else alphabetically.

    Raises:
        UserError: only one label.
    """
    names = {row.values["label"] for row in rows}
    if len(names) < 2:
        raise UserError(
            f"all {len(rows)} examples have the label '{names.pop()}'",
            file=rows[0].file,
            remedy="is it the right column?",
        )
    if all(_is_integer(name) for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def gold_labels(rows: Sequence[Row], labels: Sequence[str]) -> list[int]:
    """Return the number of each row's label.

    Raises:
        UserError: a label that is not among `labels`.
    """
    numbers = {label: number for number, label in enumerate(labels)}
    for row in rows:
        if row.values["label"] not in numbers:
            raise UserError(
                f"unknown label '{row.values['label']}'; the model knows {', '.join(labels)}",
                file=row.file,
                line=row.line,
                remedy="mend the label, or train on a file that has it",
            )
    return [numbers[row.values["label"]] for row in rows]


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
