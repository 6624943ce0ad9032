"""Ordinal regression with CORAL: predict a rank, such as one to five stars, for a text or a pair of texts.

Input: rows whose label is an integer. Output: samples, the head with its loss, predictions.

Cao, Mirjalili and Raschka 2020, "Rank consistent ordinal regression for neural networks": one weight vector, and one
bias for each rank except the lowest; unit k predicts whether the true rank is above the k-th. The loss is the sum of
the units' binary cross-entropies with equal weights; the index of the predicted rank, starting from the lowest, is the
number of units with a probability above 0.5. The units read BERT's pooled vector, as a classifier does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from unmask.data.batches.batch import Batch
from unmask.data.labelled.labelled_file import Row
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.metrics.intervals import Measure
from unmask.nn.encoders.encoder import Encoded, Encoder, HeadSpec
from unmask.objectives.objective import Part
from unmask.support.errors import UserError
from unmask.support.model_card import Card
from unmask.tasks.mistakes import Mistake
from unmask.tasks.pooled_head import PooledHead
from unmask.tasks.routes import PREDICT
from unmask.tasks.rows import RowTask, are_pairs, frame_rows, passages
from unmask.tasks.task import Columns, Framed, Notes, Paths


class Ranked(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text, or pair of texts, with its predicted rank.

    Attributes:
        text, text_b: as given.
        rank: the predicted label.
        above: for each rank except the highest, the probability that the true rank is above it.
        cut: whether the text was truncated, as it is longer than the `length` of the task.
    """

    text: str
    rank: str
    above: dict[str, float]
    text_b: str | None = None
    cut: bool = False


RANK = replace(
    PREDICT,
    path="/rank",
    summary="Rank texts or pairs of texts.",
    response=list[Ranked],
    answer=lambda task, request, predictions, outputs: predictions,
    view="",
)
"""The route of the task: it is asked as classifiers are, and answers with ranks."""


class Ordinal(RowTask, frozen=True, kw_only=True, tag="ordinal"):
    """The recipe's [task] for `kind = "ordinal"`; see `Task`.

    Attributes:
        length: maximum number of tokens, including special ones; longer texts are truncated.
        pairs: whether the inputs are pairs of texts; None: determined from the training examples.
    """

    pairs: bool | None = None

    part = "ordinal"
    metric = "accuracy"
    card = Card("Ranks of texts")
    route = RANK

    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[Row]:
        """See `Task`."""
        rows = super().read(paths, columns=columns, kind=kind, gold=gold, notes=notes)
        for row in rows if gold else ():
            if not row.values["label"].removeprefix("-").isdecimal():
                raise UserError(f"the label '{row.values['label']}' is not an integer", file=row.file, line=row.line)
        return rows

    def label_names(self, examples: Sequence[Row]) -> tuple[str, ...]:
        """See `Task`: in ascending order."""
        names = {row.values["label"] for row in examples}
        if len(names) < 2:
            raise UserError("all examples have the same rank", file=examples[0].file, remedy="is it the right column?")
        return tuple(sorted(names, key=int))

    def settle(self, examples: Sequence[Row], labels: Sequence[str]) -> Ordinal:
        """See `Task`."""
        return msgspec.structs.replace(self, pairs=are_pairs(examples, self.pairs))

    def strata(self, examples: Sequence[Row]) -> Sequence[str]:
        """See `RowTask`: the ranks."""
        return [row.values["label"] for row in examples]

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> OrdinalHead:
        """See `Task`."""
        return OrdinalHead(spec, len(labels))

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Row], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`."""
        samples, cut, notes = frame_rows(tokenizer, examples, self.length, pairs=self.pairs)
        if gold:
            ranks = _ranks(examples, labels)
            samples = [sample.add(labels={"ordinal": ranks[index : index + 1]}) for index, sample in enumerate(samples)]

        def read(logits: Sequence[np.ndarray]) -> list[Ranked]:
            return [_ranked(*one, labels) for one in zip(examples, logits, cut, strict=True)]

        return Framed(samples, read, notes, cut=cut)

    def measure(self, examples: Sequence[Row], predictions: Sequence[Ranked], labels: Sequence[str]) -> Measure:
        """See `Task`: accuracy, times 100, and the mean absolute error in ranks."""
        off = np.abs(_ranks(examples, labels) - [labels.index(prediction.rank) for prediction in predictions])
        return lambda chosen: {
            "accuracy": 100 * float((off[chosen] == 0).mean()),
            "mean_absolute_error": float(off[chosen].mean()),
        }

    def mistakes(self, examples: Sequence[Row], predictions: Sequence[Ranked], labels: Sequence[str]) -> list[Mistake]:
        """See `Task`: wrong ranks, by how many they are off."""
        return [
            Mistake(
                passages(row),
                caption=f"{row.file}:{row.line}",
                score=abs(labels.index(row.values["label"]) - labels.index(prediction.rank)),
                measure="ranks off",
                gold=row.values["label"],
                predicted=prediction.rank,
            )
            for row, prediction in zip(examples, predictions, strict=True)
            if row.values["label"] != prediction.rank
        ]

    def line(self, prediction: Ranked) -> str:
        """See `Task`."""
        return "\t".join(filter(None, (prediction.rank, prediction.text, prediction.text_b)))


class OrdinalHead(PooledHead):
    """The head and its loss: one weight vector, and one bias for each rank except the lowest.

    Args:
        spec: properties of the body below the head.
        num_ranks: number of ranks.
    """

    def __init__(self, spec: HeadSpec, num_ranks: int) -> None:
        super().__init__(spec, 1, bias=False)
        self.biases = nn.Parameter(torch.zeros(num_ranks - 1))

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the logits of being above each rank except the highest, (sequences, ranks - 1)."""
        return super().predict(encoder, encoded, batch) + self.biases

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        logits, gold = self.predict(encoder, encoded, batch).float(), batch.labels["ordinal"]
        above = (gold[:, None] > torch.arange(logits.shape[1], device=gold.device)).float()  # (sequences, ranks - 1)
        loss = binary_cross_entropy_with_logits(logits, above, reduction="sum")
        return Part(loss, {"accuracy": ((logits.detach() > 0).sum(1) == gold).sum()})


def _ranks(rows: Sequence[Row], labels: Sequence[str]) -> np.ndarray:
    """Return the index of each row's rank, from 0 for the lowest, (rows,)."""
    for row in rows:
        if row.values["label"] not in labels:
            raise UserError(
                f"unknown rank '{row.values['label']}'; the model knows {', '.join(labels)}",
                file=row.file,
                line=row.line,
            )
    return np.array([labels.index(row.values["label"]) for row in rows], np.int64)


def _ranked(row: Row, logits: np.ndarray, cut: bool, labels: Sequence[str]) -> Ranked:
    above = torch.from_numpy(logits[0]).sigmoid().tolist()  # (ranks - 1,)
    rank = labels[sum(probability > 0.5 for probability in above)]
    probabilities = dict(zip(labels, above, strict=False))
    return Ranked(row.values["text"], rank, probabilities, row.values.get("text_b"), cut)
