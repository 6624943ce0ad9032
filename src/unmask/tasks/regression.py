"""Regression on texts or pairs of texts: one linear unit over [CLS], squared error; with a sigmoid, cross-entropy.

Input: rows whose label is a number. Output: samples, the head with its loss, predictions.

As for STS-B in Devlin et al. 2019, section 4.1, and as `BertForSequenceClassification` with one label. With a sigmoid,
as a `CrossEncoder` of sentence-transformers with its `BinaryCrossEntropyLoss`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from unmask.data.batches.batch import Batch
from unmask.data.labelled.columns import LABELS, NUMBERS, SIMILARITY, Fields
from unmask.data.labelled.labelled_file import Row
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.metrics import regression as metrics
from unmask.metrics.intervals import Measure
from unmask.nn.encoders.encoder import Encoded, Encoder, HeadSpec
from unmask.objectives.objective import Part
from unmask.support.errors import UserError, counted
from unmask.support.messages import call
from unmask.support.model_card import Card
from unmask.tasks.explained import Decision, Explanation
from unmask.tasks.mistakes import Mistake
from unmask.tasks.pooled_head import TextHead
from unmask.tasks.routes import Scored
from unmask.tasks.rows import TextTask, are_pairs, joined_texts, passages, with_labels
from unmask.tasks.task import Columns, Framed, Notes, Paths, Reason, Refusals

SCORE = "score"
"""Label of a predicted number in the server's answers."""
LEAST, FINEST = 1e-30, 1e-5
"""Smallest standard deviations that can be learned: absolute, and relative to the mean (float32 has seven digits)."""
ALMOST_ZERO = 2.0**-149
"""The probability next to 0 in single precision, whose logit is finite."""
_DECIMAL_COMMA, _THOUSANDS = re.compile(r"[+-]?\d+,\d+"), re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
FEWEST, SCALE = 10, 4
"""Numbers of a file from which on its range is compared, and how many times that of another file is noted."""
LARGEST = 1e30
"""Largest absolute value of a label; the range of float32, which the labels are stored in, ends at 3.4e38."""


class Score(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text, or pair of texts, with its predicted number.

    Attributes:
        text, text_b: the texts as given.
        score: the predicted number.
        cut: whether a text was truncated because it exceeds the task's `length`, or all its `windows`.
        explanations: what the words contribute to the number, if it was asked for.
    """

    text: str
    score: float
    text_b: str | None = None
    cut: bool = False
    explanations: tuple[Explanation, ...] = ()


class ScoreTask(TextTask, frozen=True, kw_only=True):
    """Base class of tasks that predict a number for a text, or for a pair of texts; see `TextTask`.

    Attributes:
        activation: what is applied to the number that the head returns: "sigmoid" or "identity".
    """

    activation: Literal["sigmoid", "identity"] | None = None

    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[Row]:
        """See `Task`: the labels are numbers."""
        rows = super().read(paths, columns=columns, kind=kind, gold=gold, notes=notes)
        return with_numbers(rows, notes) if gold else rows

    @property
    def reranks(self) -> bool:
        """See `Task`: unless it was trained on single texts, or reads them in windows."""
        return self.pairs is not False and self.windows == 1

    @property
    def is_probability(self) -> bool:
        """Whether its number is a probability: the sigmoid of what the head returns."""
        return self.activation == "sigmoid"

    def frame_scored(
        self, tokenizer: Tokenizer, examples: Sequence[Row], targets: Mapping[str, np.ndarray] | None = None
    ) -> Framed:
        """Return texts, or pairs, as samples, and how numbers are read of what the head returns for them."""

        def read(outputs: np.ndarray, cut: Sequence[bool]) -> list[Score]:
            means = torch.from_numpy(outputs[:, 0]).double()  # (examples,): float32 has few numbers near 1
            scores = (means.sigmoid() if self.is_probability else means).tolist()
            return [
                Score(row.values["text"], score, row.values.get("text_b"), was_cut)
                for row, score, was_cut in zip(examples, scores, cut, strict=True)
            ]

        return self.framed(tokenizer, examples, targets, read)

    def rankable(self, predictions: Sequence[Score]) -> np.ndarray:
        """Return numbers in the order of the scores, which float32, as trec_eval has them, tells apart, too: of
        probabilities, the logits."""
        scores = np.array([prediction.score for prediction in predictions])
        return logits_of(scores) if self.is_probability else scores

    def decisions(self, logits: np.ndarray, labels: Sequence[str]) -> list[Decision]:
        """See `Task`: the number."""
        return [Decision(0, 0, SCORE, exclusive=False)]

    def scored(self, prediction: Score) -> list[Scored]:
        """See `RowTask`: the number."""
        return [Scored(prediction.score, SCORE)]

    def labelled(self, examples: Sequence[Row], predictions: Sequence[Score]) -> list[Row]:
        """See `Task`."""
        return with_labels(examples, [str(prediction.score) for prediction in predictions])

    def line(self, prediction: Score) -> str:
        """See `Task`."""
        return f"{prediction.score:.3f}\t{joined_texts(prediction)}"


class Regression(ScoreTask, frozen=True, kw_only=True, tag="regression"):
    """The recipe's [task] for `kind = "regression"`; see `TextTask`.

    Attributes:
        mean, deviation: the mean and the standard deviation by which labels are normalized; None: those of the training
            labels, so that their scale does not matter.
        activation: "sigmoid" if a cross-encoder of sentence-transformers states it, and for its students; the labels
            are then probabilities, and the loss is the cross-entropy; None: "identity".
    """

    mean: float | None = None
    deviation: float | None = None

    part = "regression"
    metric = "pearson"
    comparable = ("pearson", "spearman")
    card = Card(title="A regression on texts", pipeline="text-classification")
    fields = Fields((*NUMBERS, *LABELS), SIMILARITY, weights=True)
    refusals: ClassVar[Refusals] = {"temperature": Reason("a temperature softens no numbers", "remove it")}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.deviation is not None and not LEAST <= self.deviation < math.inf:
            raise ValueError("deviation must be above 0")
        if self.mean is not None and not math.isfinite(self.mean):
            raise ValueError("mean must be a number")

    def label_names(self, examples: Sequence[Row]) -> tuple[str, ...]:
        """See `Task`: none."""
        if len(set(numbers(examples))) < 2:
            raise all_equal(examples)
        return ()

    def settle(self, examples: Sequence[Row], labels: Sequence[str]) -> Regression:
        """See `Task`: resolves the mean and the standard deviation."""
        pairs = are_pairs(examples, self.pairs)
        values = np.array(numbers(examples))
        if len(set(values)) < 2 and self.deviation is None:
            raise all_equal(examples)
        if self.is_probability:
            if self.mean is not None or self.deviation is not None:
                raise UserError(
                    "task.mean and task.deviation have no effect with task.activation", remedy="remove them"
                )
            return msgspec.structs.replace(self, pairs=pairs)
        mean = float(values.mean()) if self.mean is None else self.mean
        deviation = float(values.std()) if self.deviation is None else self.deviation
        if deviation < max(LEAST, FINEST * abs(mean)):
            raise UserError(
                f"float32 cannot distinguish these numbers: mean {mean:.10g}, standard deviation {deviation:.3g}",
                file=examples[0].file,
                remedy="subtract a constant from them, or scale them up",
            )
        return msgspec.structs.replace(self, mean=mean, deviation=deviation, pairs=pairs)

    def check_gold(self, examples: Sequence[Row]) -> None:
        """See `Task`: with a sigmoid the labels are probabilities."""
        for row, value in zip(examples, numbers(examples), strict=True):
            if self.is_probability and not 0 <= value <= 1:
                raise UserError(
                    f"the label {value:g} is not a probability, as those of a sigmoid (task.activation) are",
                    file=row.file or None,
                    line=row.line or None,
                    remedy="scale the labels to the range from 0 to 1",
                )

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> RegressionHead:
        """See `Task`."""
        return RegressionHead(spec, self.mean or 0.0, self.deviation or 1.0, is_probability=self.is_probability)

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Row], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`."""
        targets = None
        if gold:
            values = (np.array(numbers(examples)) - (self.mean or 0.0)) / (self.deviation or 1.0)
            targets = {"regression": values.astype(np.float32)[:, None]}
        return self.frame_scored(tokenizer, examples, targets)

    def measure(self, examples: Sequence[Row], predictions: Sequence[Score], labels: Sequence[str]) -> Measure:
        """See `Task`."""
        predicted = np.array([prediction.score for prediction in predictions])
        return metrics.measure(np.array(numbers(examples)), predicted)

    def undefined(self, examples: Sequence[Row], predictions: Sequence[Score]) -> str:
        """See `Task`: correlations, if all numbers are equal."""
        if len(set(numbers(examples))) < 2:
            what = f"the gold number of all {counted(len(examples), 'example')} is the same"
        elif len(same := {prediction.score for prediction in predictions}) < 2:
            what = f"{same.pop():g} is predicted for all {counted(len(examples), 'example')}"
        else:
            return ""
        return f"{what}: correlations are undefined, and reported as 0"

    def mistakes(self, examples: Sequence[Row], predictions: Sequence[Score], labels: Sequence[str]) -> list[Mistake]:
        """See `Task`: all texts, by the error."""
        return [
            Mistake(
                passages(row),
                caption=f"{row.file}:{row.line}",
                score=abs(prediction.score - value),
                measure="error",
                gold=row.values["label"],
                predicted=f"{prediction.score:.3f}",
            )
            for row, value, prediction in zip(examples, numbers(examples), predictions, strict=True)
        ]


class RegressionHead(TextHead):
    """Regression head with its loss: the squared error of normalized numbers, with a sigmoid the cross-entropy.

    Normalization makes training independent of the scale of the numbers, to which an unnormalized unit would have
    to grow. In model directories, mean and standard deviation are folded into weight and bias.

    Args:
        spec: the properties of the body under the head.
        mean: the mean of the labels.
        deviation: the standard deviation of the labels.
        is_probability: whether the labels are probabilities, those of the sigmoid of the numbers.
    """

    def __init__(
        self, spec: HeadSpec, mean: float = 0.0, deviation: float = 1.0, *, is_probability: bool = False
    ) -> None:
        super().__init__(spec, 1)
        self.mean, self.deviation, self.is_probability = mean, deviation, is_probability

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the numbers, (texts, 1), before the activation."""
        return self.mean + self.deviation * super().predict(encoder, encoded, batch).float()

    def published(self) -> dict[str, Tensor]:
        """See `Objective`: a linear unit that returns unnormalized numbers."""
        weight, bias = self.out.weight.detach(), self.out.bias.detach()
        return {"out.weight": weight * self.deviation, "out.bias": bias * self.deviation + self.mean}

    def adopt(self, tensors: Mapping[str, Tensor]) -> None:
        """See `Objective`."""
        weight, bias = tensors["out.weight"], tensors["out.bias"]
        self.load_state_dict({"out.weight": weight / self.deviation, "out.bias": (bias - self.mean) / self.deviation})

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        predicted = super().predict(encoder, encoded, batch).float().squeeze(1)  # (texts,), neither scaled nor shifted
        gold = self.gold(batch, "regression").squeeze(1)
        weights = self.example_weights(batch)
        if self.is_probability:
            return Part(binary_cross_entropy_with_logits(predicted, gold, weights, reduction="sum"), {})
        errors = (predicted - gold).square()
        return Part((errors if weights is None else weights * errors).sum(), {})

    def imitate(self, logits: Tensor, targets: Tensor, batch: Batch, temperature: float) -> Part:
        """See `Objective`: the squared error of normalized numbers, or the cross-entropy of probabilities; a
        temperature has no effect."""
        if self.is_probability:
            probabilities = targets.float().sigmoid()
            return Part(binary_cross_entropy_with_logits(logits.float(), probabilities, reduction="sum"), {})
        return Part(((logits - targets.float()) / self.deviation).square().sum(), {})


def logits_of(probabilities: np.ndarray) -> np.ndarray:
    """Return the logits of probabilities, of any shape, those of 0 and 1 as of the next ones in their precision."""
    almost_one = 1 - float(np.finfo(probabilities.dtype).epsneg)
    values = probabilities.astype(np.float64).clip(ALMOST_ZERO, almost_one)
    logits: np.ndarray = np.log(values) - np.log1p(-values)
    return logits


def all_equal(rows: Sequence[Row]) -> UserError:
    """Return the error that rows have equal numbers."""
    return UserError(
        f"all {len(rows)} examples have the same number", file=rows[0].file, remedy="is it the right column?"
    )


def extremes(rows: Sequence[Row], least: float | None, most: float | None) -> tuple[float, float]:
    """Return the settings `task.least` and `task.most`, by default the least and the largest number of rows.

    Raises:
        UserError: the first is not below the second.
    """
    values = numbers(rows)
    low, high = min(values) if least is None else least, max(values) if most is None else most
    if low < high:
        return low, high
    if least is None and most is None:
        raise all_equal(rows)
    raise UserError(
        f"task.least = {low:g} is not below task.most = {high:g}",
        file=rows[0].file,
        remedy=f"the examples have numbers from {min(values):g} to {max(values):g}",
    )


def with_numbers(rows: Sequence[Row], notes: Notes = None) -> list[Row]:
    """Return rows whose labels are numbers, with decimal points in place of the decimal commas of a file.

    Spreadsheets write these in most of Europe. The commas of a file are decimal if each number has one at most, none a
    point, and some comma cannot separate thousands, as in `0,125` and `3,5`.

    Args:
        rows: the rows.
        notes: receives a line for each file with decimal commas, and one if the numbers of files have other scales.

    Raises:
        UserError: a label is not a number.
    """
    labels: dict[str, list[str]] = {}
    for row in rows:
        labels.setdefault(row.file, []).append(row.values["label"])
    commas = {file for file, values in labels.items() if _have_decimal_commas(values)}
    if notes is not None:
        notes += [f"{file}: the commas in its numbers are read as decimal points" for file in sorted(commas)]
    if commas:
        texts = (row.values["label"].replace(",", "." if row.file in commas else ",") for row in rows)
        rows = with_labels(rows, list(texts))
    values = numbers(rows)
    if notes is not None:
        notes += _describe_scales(rows, values)
    return list(rows)


def _describe_scales(rows: Sequence[Row], values: Sequence[float]) -> list[str]:
    """Return a note if the range of the numbers of a file is several times that of another file."""
    by_file: dict[str, list[float]] = {}
    for row, value in zip(rows, values, strict=True):
        by_file.setdefault(row.file, []).append(value)
    ranges = [
        (max(found) - min(found), f"from {min(found):g} to {max(found):g} in {file}")
        for file, found in by_file.items()
        if len(found) >= FEWEST and min(found) < max(found)
    ]
    narrow, wide = min(ranges, default=(0.0, "")), max(ranges, default=(0.0, ""))
    if wide[0] < SCALE * narrow[0] or len(ranges) < 2:
        return []
    return [f"the numbers are {narrow[1]}, and {wide[1]}: if these are other scales, bring them to one"]


def _have_decimal_commas(labels: Sequence[str]) -> bool:
    found = [label for label in labels if "," in label]
    return (
        all(_DECIMAL_COMMA.fullmatch(label) for label in found)
        and not any("." in label for label in labels)
        and any(not _THOUSANDS.fullmatch(label) for label in found)
    )


def numbers(rows: Sequence[Row]) -> list[float]:
    """Return the number of each row.

    Raises:
        UserError: a label is not a number.
    """
    values = []
    for row in rows:
        text = row.values["label"]
        try:
            value = math.nan if "_" in text else float(text)  # 1_000 is Python's notation
        except ValueError:
            value = math.nan
        if math.isfinite(value) and abs(value) > LARGEST:
            raise UserError(f"the label '{text}' is too large", file=row.file, line=row.line)
        if not math.isfinite(value):
            remedy = f"write the number alone; names of classes are for {call('finetune', 'classification')}"
            if "," in text:
                remedy = "write a decimal point, and nothing between thousands"
            raise UserError(f"the label '{text}' is not a number", file=row.file, line=row.line, remedy=remedy)
        values.append(value)
    return values
