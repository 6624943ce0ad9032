"""Predict a number for a text or a pair of texts: [CLS], one linear unit, squared error.

In: rows whose label is a number. Out: samples, the head with its loss, predictions.

As STS-B in Devlin et al. 2019, section 4.1, and `BertForSequenceClassification` with one label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from torch import Tensor, nn

from unmask.batches.batch import Batch, Sample
from unmask.encoders.encoder import Encoded, Encoder
from unmask.encoders.transformer import TransformerSettings, initialise
from unmask.errors import UserError
from unmask.layers.dropout import Dropout
from unmask.metrics import regression as metrics
from unmask.metrics.intervals import Measure
from unmask.objectives.objective import Objective, Part
from unmask.tasks.labelled_file import LABELS, Row, read_rows
from unmask.tasks.rows import frame_rows, hold_out
from unmask.tasks.task import Framed
from unmask.tokenizers.tokenizer import Tokenizer

NUMBERS = ("score", "similarity", "relatedness_score")
"""Names under which a number is found."""


class Score(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text, or pair of texts, with its predicted number."""

    text: str
    score: float
    text_b: str | None = None


class Regression(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="regression"
):
    """The recipe's [task] for `kind = "regression"`; satisfies `Task`.

    Attributes:
        length: longer texts are cut to that many tokens, special ones included.
    """

    length: int = 128

    def __post_init__(self) -> None:
        if self.length < 3:
            raise ValueError("length must be at least 3")

    @property
    def part(self) -> str:
        """See `Task`."""
        return "regression"

    def read(
        self, paths: Sequence[str | Path], *, columns: Mapping[str, str], kind: str | None = None, gold: bool = True
    ) -> list[Row]:
        """See `Task`."""
        rows = read_rows(paths, columns=columns, gold=gold, kind=kind, labels=(*NUMBERS, *LABELS))
        if gold:
            _values(rows)
        return rows

    def label_names(self, examples: Sequence[Row]) -> tuple[str, ...]:
        """See `Task`: none."""
        if len(set(_values(examples))) < 2:
            raise UserError(
                f"all {len(examples)} examples have the same number", file=examples[0].file, remedy="the right column?"
            )
        return ()

    def settle(self, examples: Sequence[Row], labels: Sequence[str]) -> Regression:
        """See `Task`: nothing is open."""
        return self

    def hold_out(self, examples: Sequence[Row], seed: int) -> tuple[list[Row], list[Row]]:
        """See `Task`."""
        return hold_out(examples, [0] * len(examples), seed)

    def set_aside(self, examples: Sequence[Row], seed: int) -> tuple[list[Row], list[Row]]:
        """See `Task`: nothing."""
        return list(examples), []

    def tune(self, examples: Sequence[Row], predictions: Sequence[Score]) -> Regression:
        """See `Task`: nothing is tuned."""
        return self

    def build(self, encoder: TransformerSettings, labels: Sequence[str]) -> RegressionHead:
        """See `Task`."""
        return RegressionHead(encoder)

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Row], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`."""
        samples = frame_rows(tokenizer, examples, self.length)
        if gold:
            values = np.array(_values(examples), np.float32)
            samples = [
                sample.add(labels={"regression": values[place : place + 1]}) for place, sample in enumerate(samples)
            ]

        def read(logits: Sequence[np.ndarray]) -> list[Score]:
            return [
                Score(row.values["text"], float(value[0, 0]), row.values.get("text_b"))
                for row, value in zip(examples, logits, strict=True)
            ]

        return Framed(samples, read)

    def measure(self, examples: Sequence[Row], predictions: Sequence[Score], labels: Sequence[str]) -> Measure:
        """See `Task`."""
        said = np.array([prediction.score for prediction in predictions])
        return metrics.measure(np.array(_values(examples)), said)


class RegressionHead(Objective):
    """The head and its loss, the squared error.

    Args:
        encoder: settings of the body that the head sits on.
    """

    at = "summary"
    needs = frozenset({"regression"})

    def __init__(self, encoder: TransformerSettings) -> None:
        super().__init__()
        self.dropout = Dropout(encoder.dropout)
        self.out = nn.Linear(encoder.width, 1)
        initialise(self, encoder.deviation)

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`."""
        return sample.add(counts={name: 1})

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the numbers, (sequences, 1)."""
        rows = encoder.pool(encoded.last.index_select(0, batch.positions["summary"]))  # (sequences, width)
        return self.out(self.dropout(rows))

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        found = self.predict(encoder, encoded, batch).float().squeeze(1)  # (sequences,)
        return Part((found - batch.labels["regression"]).square().sum(), {})

    def forward_flops(self, encoder: Encoder, batch: Batch) -> int:
        """See `Objective`: the pooler and the linear unit, once a sequence."""
        return 2 * len(batch.positions["summary"]) * encoder.width * (encoder.width + 1)


def _values(rows: Sequence[Row]) -> list[float]:
    """Return the number of each row.

    Raises:
        UserError: a label that is no number.
    """
    values = []
    for row in rows:
        try:
            value = float(row.values["label"])
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UserError(f"the label '{row.values['label']}' is no number", file=row.file, line=row.line)
        values.append(value)
    return values
