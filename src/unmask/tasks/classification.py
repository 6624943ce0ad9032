"""Classification of texts or pairs of texts: one softmax layer over [CLS]; all parameters are tuned.

Input: labeled rows. Output: samples, the head with its loss, predictions.

Devlin et al. 2019, section 4.1: the pooled vector of [CLS], dropout, a new layer, cross-entropy. A pair is one sequence
with segments 0 and 1. Texts that are too long are truncated at the end; in a pair, the longer text is truncated
(`_truncate_seq_pair` of google-research/bert).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from unmask.data.batches.batch import Batch
from unmask.data.labelled.columns import Fields
from unmask.data.labelled.labelled_file import Row
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.metrics import classification as metrics
from unmask.metrics.intervals import Measure, measure_all
from unmask.metrics.label_quality import agreement, describe_agreement
from unmask.nn.encoders.encoder import Encoded, Encoder, HeadSpec
from unmask.objectives.objective import Part, imitate_softmax
from unmask.support.errors import UserError
from unmask.support.model_card import Card
from unmask.support.transfer import to_device
from unmask.tasks.explained import Decision, Explanation
from unmask.tasks.gold_labels import (
    are_soft,
    example_weights,
    label_numbers,
    positive_label,
    soft_labels,
    sort_labels,
    votes_of,
)
from unmask.tasks.mistakes import Mistake
from unmask.tasks.pooled_head import (
    NONE,
    TUNED,
    ProbedHead,
    Regularization,
    Weights,
    check_focal,
    check_weights,
    score,
    weights_of,
)
from unmask.tasks.routes import Scored
from unmask.tasks.rows import TextTask, are_pairs, joined_texts, passages, scores_of, with_labels
from unmask.tasks.task import Columns, Framed, Notes, Paths, Training
from unmask.tasks.tuning import (
    Temperature,
    Threshold,
    at_temperature,
    check_temperature,
    check_thresholds,
    compare,
    describe_calibration,
    describe_thresholds,
    divisor,
    exclusive_thresholds,
    find_temperature,
    settled_threshold,
    softmax,
)

SOFT = "soft_labels"
"""Name of the distributions in samples; they are beside the index of the most probable label."""
MAX_CONFUSION = 1000
"""Maximum number of labels for a confusion matrix in the scores, which has their square of numbers."""


class Prediction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A classified text, or pair of texts.

    Attributes:
        text, text_b: the texts as given.
        label: the most probable label.
        scores: probability of each label, in the model's order.
        cut: whether a text was truncated because it exceeds the task's `length`, or all its `windows`.
        explanations: what the words contribute to the label, if it was asked for.
    """

    text: str
    label: str
    scores: dict[str, float]
    text_b: str | None = None
    cut: bool = False
    explanations: tuple[Explanation, ...] = ()


class Classification(TextTask, frozen=True, kw_only=True, tag="classification"):
    """The recipe's [task] for `kind = "classification"`; see `TextTask`.

    Attributes:
        weights: weights of the labels in the loss, in the model's order; empty: all equal; "balanced": every label has
            the same total weight, however many examples it has.
        focal: exponent of the focal loss, in which examples that are predicted well already count less (Lin et al.
            2017 use 2); 0: the cross-entropy.
        regularization: label smoothing and R-Drop.
        temperature: what logits are divided by before they become probabilities; "tuned": found on a tenth of the
            training examples, which are then not used for training.
        positive: of two labels, the one whose F1 is `f1`; "": in training, the rarer one if it has less than a quarter
            of the examples, otherwise the second.
        threshold: of two labels, the probability above which the positive one is predicted; or thresholds in the
            model's order: the label with the largest ratio of probability to threshold is predicted; 0.5: the most
            probable label; "tuned": found on a tenth of the training examples, which are then not used for training;
            None: 0.5, or, if the rarest label has less than 2 % of the examples of the most frequent one, and the loss
            is neither weighted nor focal, the fourth roots of the labels' shares; see `unmask.tasks.tuning`.
    """

    weights: Weights = ()
    focal: float = 0.0
    regularization: Regularization = NONE
    temperature: Temperature = 1.0
    positive: str = ""
    threshold: Threshold = None

    part = "classification"
    metric = "accuracy"
    comparable = ("accuracy", "f1", "f1_macro", "balanced_accuracy", "matthews_correlation")
    scoring = ("positive",)
    card = Card(title="A text classifier", pipeline="text-classification")
    exports = True
    fields = Fields(soft=True, weights=True)
    training = Training(
        tuned={**TUNED, "focal": 0.0, "threshold": None}, probe=True, unprobed=("focal", "regularization")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature)
        check_focal(self.focal)
        check_weights(self.weights)
        check_thresholds(self.threshold)

    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[Row]:
        """See `Task`; of votes, the agreement of the annotators is noted."""
        rows = super().read(paths, columns=columns, kind=kind, gold=gold, notes=notes)
        if notes is not None and (votes := votes_of(rows)):
            notes.append(describe_agreement(agreement(votes), len(votes)))
        return rows

    def label_names(self, examples: Sequence[Row]) -> tuple[str, ...]:
        """See `Task`: sorted by value if all labels are numbers, alphabetically otherwise."""
        names = {name for row in examples for name in self.labels_of(row)}
        if len(names) < 2:
            raise UserError(
                f"all {len(examples)} examples have the label '{names.pop()}'",
                file=examples[0].file,
                remedy="is it the right column?",
            )
        return sort_labels(names)

    def labels_of(self, example: Row) -> tuple[str, ...]:
        """See `Task`: of a soft label, all that have a probability."""
        return (example.values["label"],) if example.probabilities is None else tuple(example.probabilities)

    def settle(self, examples: Sequence[Row], labels: Sequence[str]) -> Classification:
        """See `Task`: "balanced" weights become numbers whose mean over the examples is 1; positive label, thresholds.

        Raises:
            UserError: the positive label is not one of two, or there are not as many thresholds as labels.
        """
        numbers, weights = label_numbers(examples, labels), example_weights(examples)
        counts = np.bincount(numbers, minlength=len(labels))
        task = msgspec.structs.replace(
            self, pairs=are_pairs(examples, self.pairs), positive=positive_label(self.positive, labels, counts)
        )
        plain = not self.weights and not self.focal
        weighted = counts if weights is None else np.bincount(numbers, weights, minlength=len(labels))
        threshold = settled_threshold(self.threshold, labels, weighted, task.positive, plain=plain)
        task = msgspec.structs.replace(task, threshold=threshold)
        if self.weights != "balanced":
            return task
        if are_soft(examples):
            shares = soft_labels(examples, labels)
            weighted = shares.sum(0) if weights is None else weights @ shares
        balance = len(examples) / (len(labels) * np.where(weighted > 0, weighted, 1))
        return msgspec.structs.replace(task, weights=tuple(balance.tolist()))

    def strata(self, examples: Sequence[Row]) -> Sequence[str]:
        """See `RowTask`: the labels; of soft labels, the most probable ones."""
        strata = [row.values["label"] for row in examples]
        if len(set(strata)) < 2:
            self.label_names(examples)  # refuses examples that all have the same label
        return strata

    @property
    def tunes(self) -> bool:
        """See `Task`: the temperature and the thresholds."""
        return "tuned" in (self.temperature, self.threshold)

    @property
    def exclusive(self) -> bool:
        """See `Task`."""
        return not isinstance(self.threshold, tuple)

    def remark(self, labels: Sequence[str]) -> str:
        """See `Task`: the thresholds."""
        return describe_thresholds(labels, self.threshold) if isinstance(self.threshold, tuple) else ""

    def tune(self, examples: Sequence[Row], predictions: Sequence[Prediction]) -> Classification:
        """See `Task`: the temperature with the smallest loss, then the thresholds with the best F1."""
        (probabilities, gold), labels = _probabilities(examples, predictions), tuple(predictions[0].scores)
        task = self
        if self.temperature == "tuned":
            task = msgspec.structs.replace(task, temperature=find_temperature(probabilities, gold))
            probabilities = at_temperature(probabilities, divisor(task.temperature))
        if self.threshold == "tuned":
            positive = labels.index(self.positive) if self.positive else None
            thresholds = exclusive_thresholds(np.eye(len(labels))[gold], probabilities, positive)
            task = msgspec.structs.replace(task, threshold=tuple(thresholds.tolist()))
        return task

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> ClassificationHead:
        """See `Task`.

        Raises:
            UserError: the number of weights differs from the number of labels.
        """
        weights = weights_of(self.weights, labels)
        return ClassificationHead(spec, len(labels), weights, self.regularization, self.focal)

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Row], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`."""
        targets = {"classification": np.array(label_numbers(examples, labels), np.int64)[:, None]} if gold else None
        if targets and are_soft(examples):
            targets[SOFT] = soft_labels(examples, labels).astype(np.float32)

        def read(logits: np.ndarray, was_cut: Sequence[bool]) -> list[Prediction]:
            # in float64: those of float32 do not sum to 1 as exactly as scikit-learn expects
            probabilities = softmax(logits.astype(np.float64) / divisor(self.temperature))
            chosen = [labels[number] for number in self._choose(probabilities)]
            return [
                Prediction(
                    row.values["text"], label, dict(zip(labels, each, strict=True)), row.values.get("text_b"), cut
                )
                for row, label, each, cut in zip(examples, chosen, probabilities.tolist(), was_cut, strict=True)
            ]

        return self.framed(tokenizer, examples, targets, read)

    @property
    def controls(self) -> dict[str, Any]:
        """See `Task`."""
        return {} if self.exclusive else {"threshold": self.threshold}

    def decisions(self, logits: np.ndarray, labels: Sequence[str]) -> list[Decision]:
        """See `Task`: the predicted label."""
        best = int(self._choose(softmax(logits[:1].astype(float) / divisor(self.temperature)))[0])
        return [Decision(0, best, labels[best], exclusive=True, temperature=divisor(self.temperature))]

    def scored(self, prediction: Prediction) -> list[Scored]:
        """See `RowTask`."""
        return [
            Scored(probability, label, None if self.exclusive else label == prediction.label)
            for label, probability in prediction.scores.items()
        ]

    def predicted(self, prediction: Prediction) -> dict[str, float]:
        """See `RowTask`: one."""
        return {prediction.label: prediction.scores[prediction.label]}

    def measure(self, examples: Sequence[Row], predictions: Sequence[Prediction], labels: Sequence[str]) -> Measure:
        """See `Task`."""
        positive = labels.index(self.positive) if self.positive in labels else 1
        measure = metrics.measure(*gold_and_predicted(examples, predictions, labels), len(labels), positive)
        if not are_soft(examples):
            return measure
        return metrics.with_soft_labels(measure, soft_labels(examples, labels), scores_of(predictions, labels))

    def constants(self, labels: Sequence[str]) -> list[Prediction]:
        """See `Task`: each of the labels."""
        return [Prediction("", label, {name: float(name == label) for name in labels}) for label in labels]

    def calibration(self, examples: Sequence[Row], predictions: Sequence[Prediction]) -> dict[str, float]:
        """See `Task`: of the most probable labels."""
        return describe_calibration(*_probabilities(examples, predictions), self.temperature)

    def labelled(self, examples: Sequence[Row], predictions: Sequence[Prediction]) -> list[Row]:
        """See `Task`."""
        return with_labels(examples, [prediction.label for prediction in predictions])

    def mistakes(
        self, examples: Sequence[Row], predictions: Sequence[Prediction], labels: Sequence[str]
    ) -> list[Mistake]:
        """See `Task`: predictions of a wrong label, by its probability."""
        return [
            Mistake(
                passages(row),
                caption=f"{row.file}:{row.line}",
                score=prediction.scores[prediction.label],
                measure="probability",
                gold=row.values["label"],
                predicted=prediction.label,
                probabilities=prediction.scores,
            )
            for row, prediction in zip(examples, predictions, strict=True)
            if prediction.label != row.values["label"]
        ]

    def details(
        self, examples: Sequence[Row], predictions: Sequence[Prediction], labels: Sequence[str]
    ) -> dict[str, Any]:
        """See `Task`: the labels, their confusion matrix, with gold labels as rows, and the scores of each label.

        More than `MAX_CONFUSION` labels have no confusion matrix. If there are votes, `agreement` of the annotators; if
        there are thresholds, what they change.
        """
        gold, predicted = gold_and_predicted(examples, predictions, labels)
        has, gets = (numbers[:, None] == np.arange(len(labels)) for numbers in (gold, predicted))  # (examples, labels)
        probabilities = scores_of(predictions, labels)
        votes = votes_of(examples)
        large = len(labels) > MAX_CONFUSION
        return {
            "labels": labels,
            **({"positive": self.positive or labels[1]} if len(labels) == 2 else {}),
            **({} if large else {"confusion": metrics.confusion(gold, predicted, len(labels)).tolist()}),
            **({"agreement": agreement(votes)} if votes else {}),
            **self._compared(labels, gold, predicted, probabilities),
            "by_label": metrics.by_label(has, gets, probabilities.reshape(-1, len(labels)), labels),
        }

    def _compared(
        self, labels: Sequence[str], gold: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray
    ) -> dict[str, Any]:
        """Return the scores without thresholds, and those of each label with and without, if there are thresholds."""
        if not isinstance(self.threshold, tuple):
            return {}
        likely, positive = probabilities.argmax(1), labels.index(self.positive) if self.positive in labels else 1
        without = measure_all(metrics.measure(gold, likely, len(labels), positive), len(gold))
        each = (np.eye(len(labels), dtype=bool)[numbers] for numbers in (gold, likely, predicted))
        return {
            "without_thresholds": without,
            "thresholds": compare(labels, np.array(self.threshold), *each),
        }

    def _choose(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the index of the predicted label, (texts,), given the probabilities, (texts, labels)."""
        thresholds = np.array(self.threshold) if isinstance(self.threshold, tuple) else 1.0
        return np.asarray((probabilities / thresholds).argmax(1))

    def line(self, prediction: Prediction) -> str:
        """See `Task`."""
        return f"{prediction.label}\t{prediction.scores[prediction.label]:.3f}\t{joined_texts(prediction)}"


class ClassificationHead(ProbedHead):
    """Classification head with its loss.

    Args:
        spec: the properties of the body under the head.
        num_labels: number of classes of the softmax layer.
        weights: weights of the classes in the loss; empty: all equal.
        regularization: changes the loss in training.
        focal: exponent of the focal loss in training.
    """

    exclusive = True

    def __init__(
        self,
        spec: HeadSpec,
        num_labels: int,
        weights: Sequence[float] = (),
        regularization: Regularization = NONE,
        focal: float = 0.0,
    ) -> None:
        super().__init__(spec, num_labels, bias=spec.bias)
        self.weights, self.regularization, self.focal = tuple(weights), regularization, focal

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`; the loss of an example is multiplied by its weight, and by that of its label."""
        gold = self.gold(batch, "classification").squeeze(1)  # (texts,)
        weights = to_device(torch.tensor(self.weights), gold.device) if self.weights else None
        soft = self.gold(batch, SOFT) if SOFT in batch.labels else None  # (texts, labels)
        if (examples := self.example_weights(batch)) is not None:
            shares = one_hot(gold, self.out.out_features) if soft is None else soft
            soft = shares * examples[:, None]
        return score(self, self.regularization, encoder, encoded, batch, gold, weights, soft, self.focal)

    def targets(self, batch: Batch) -> Tensor:
        """See `ProbedHead`: the distribution of a soft label, times the weights of the labels."""
        labels = self.out.out_features
        if SOFT in batch.labels:
            shares = self.gold(batch, SOFT)
        else:
            shares = one_hot(self.gold(batch, "classification").squeeze(1), labels)
        return shares * to_device(torch.tensor(self.weights or [1.0] * labels), shares.device)

    def imitate(self, logits: Tensor, targets: Tensor, batch: Batch, temperature: float) -> Part:
        """See `Objective`."""
        return imitate_softmax(logits, targets, temperature)


def gold_and_predicted(
    examples: Sequence[Row], predictions: Sequence[Prediction], labels: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the gold and of the predicted labels, each of shape (examples,)."""
    numbers = {label: number for number, label in enumerate(labels)}
    predicted = np.array([numbers[prediction.label] for prediction in predictions])
    return np.array(label_numbers(examples, labels)), predicted


def _probabilities(examples: Sequence[Row], predictions: Sequence[Prediction]) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability of each label, (examples, labels), and the index of each gold label."""
    names = tuple(predictions[0].scores)
    return scores_of(predictions, names), np.array(label_numbers(examples, names))
