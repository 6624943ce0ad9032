"""Classification with any number of labels per text or pair: one sigmoid per label over [CLS].

Input: labeled rows. Output: samples, the head with its loss, predictions.

As `BertForSequenceClassification` with `problem_type="multi_label_classification"`: the loss is the mean of the binary
cross-entropies of all labels. A label is predicted if its probability exceeds a threshold, that with the best micro F1
on training examples that were set aside; rare labels have lower ones (see `unmask.tasks.tuning`).

Labels may be soft: a text then has an independent probability of each label, which is the target of its binary
cross-entropy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from unmask.data.batches.batch import Batch, Sample
from unmask.data.labelled.columns import Fields
from unmask.data.labelled.label_cells import separator_of
from unmask.data.labelled.labelled_file import Row
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.metrics import classification as metrics
from unmask.metrics.intervals import Measure, measure_all
from unmask.metrics.label_quality import agreement_by_label, describe_agreement, mean_agreement
from unmask.nn.encoders.encoder import Encoded, Encoder, HeadSpec
from unmask.objectives.objective import Part
from unmask.support.errors import UserError
from unmask.support.model_card import Card
from unmask.support.transfer import to_device
from unmask.tasks.explained import Decision, Explanation
from unmask.tasks.gold_labels import are_soft, example_weights, soft_labels, sort_labels, votes_of
from unmask.tasks.mistakes import Mistake
from unmask.tasks.pooled_head import ProbedHead, Weights, binary_focal_loss, check_focal, check_weights, weights_of
from unmask.tasks.routes import Scored
from unmask.tasks.rows import TextTask, are_pairs, joined_texts, passages, scores_of
from unmask.tasks.task import Columns, Framed, Notes, Paths, Training, describe_nothing
from unmask.tasks.tuning import (
    RARE,
    Temperature,
    Threshold,
    at_temperature,
    best_threshold,
    by_shares,
    check_number,
    check_temperature,
    check_thresholds,
    compare,
    describe_calibration,
    divisor,
    find_temperature,
    label_thresholds,
    threshold_of,
)


class Labels(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text, or pair of texts, with its labels.

    Attributes:
        text, text_b: the texts as given.
        labels: the labels whose probability exceeds the threshold, in the model's order; there may be none.
        scores: probability of each label, in the model's order; they do not sum to 1.
        cut: whether a text was truncated because it exceeds the task's `length`, or all its `windows`.
        explanations: what the words contribute to each of the labels, or if there are none to the most probable one, if
            it was asked for.
    """

    text: str
    labels: tuple[str, ...]
    scores: dict[str, float]
    text_b: str | None = None
    cut: bool = False
    explanations: tuple[Explanation, ...] = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "labels", tuple(self.labels))


class MultiLabel(TextTask, frozen=True, kw_only=True, tag="multi-label"):
    """The recipe's [task] for `kind = "multi-label"`; see `TextTask`.

    Attributes:
        weights: factor of the positive term of each label in the loss, in the model's order; empty: all 1; "balanced":
            the examples without the label by those with it, so that both have the same total weight.
        focal: exponent of the focal loss, as in `Classification`.
        threshold: probability above which a label is predicted, or those of the labels, in the model's order; "tuned":
            each has its own, tuned on a tenth of the training examples, which are then not used for training; None: one
            is tuned on these examples, and labels that less than 2 % of them have get one that depends on their share.
        temperature: what logits are divided by before they become probabilities; "tuned": found on the same examples.
    """

    weights: Weights = ()
    focal: float = 0.0
    threshold: Threshold = None
    temperature: Temperature = 1.0

    part = "multi_label"
    metric = "f1_micro"
    comparable = ("f1_micro", "f1_macro", "mean_average_precision")
    card = Card(title="A text classifier with several labels per text", pipeline="text-classification")
    exports = True
    training = Training(
        probe=True, unprobed=("focal", "weights"), tuned={"threshold": None, "temperature": 1.0, "focal": 0.0}
    )
    fields = Fields(several=True, soft=True, weights=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature)
        check_focal(self.focal)
        check_weights(self.weights)
        check_thresholds(self.threshold)

    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[Row]:
        """See `Task`; of votes, the agreement of the annotators is noted: the mean over the labels of the examples.

        So is it if no text has several labels, as where other marks separate them than those that are known.
        """
        rows = super().read(paths, columns=columns, kind=kind, gold=gold, notes=notes)
        if gold and notes is not None and not any(len(self.labels_of(row)) > 1 for row in rows):
            notes.append(f"no text has several labels: these are separated by '{separator_of(columns)}', or in lists")
        if notes is not None and (votes := votes_of(rows)):
            names = sorted({name for row in rows for name in self.labels_of(row)})
            notes.append(describe_agreement(mean_agreement(agreement_by_label(votes, names)), len(votes)))
        return rows

    def label_names(self, examples: Sequence[Row]) -> tuple[str, ...]:
        """See `Task`: sorted by value if all labels are numbers, alphabetically otherwise."""
        names = {name for row in examples for name in self.labels_of(row)}
        soft = are_soft(examples)
        if not names or (not soft and all(len(row.labels or ()) == len(names) for row in examples)):
            raise UserError(
                f"all {len(examples)} examples have {'the same labels' if names else 'no label'}",
                file=examples[0].file,
                remedy="is it the right column?",
            )
        return sort_labels(names)

    def labels_of(self, example: Row) -> tuple[str, ...]:
        """See `Task`: of soft labels, all that have a probability."""
        return tuple(example.labels or () if example.probabilities is None else example.probabilities)

    def settle(self, examples: Sequence[Row], labels: Sequence[str]) -> MultiLabel:
        """See `Task`: "balanced" weights become numbers; a label without positive or negative examples has weight 1."""
        task = msgspec.structs.replace(self, pairs=are_pairs(examples, self.pairs))
        if self.weights != "balanced":
            return task
        shares, weights = soft_labels(examples, labels), example_weights(examples)
        weights = np.ones(len(examples)) if weights is None else weights
        has, lacks = weights @ shares, weights @ (1 - shares)  # (labels,)
        balance = np.where((has > 0) & (lacks > 0), lacks / has.clip(1e-9), 1.0)
        return msgspec.structs.replace(task, weights=tuple(balance.tolist()))

    def strata(self, examples: Sequence[Row]) -> Sequence[str]:
        """See `RowTask`: the first label, in the order of the row."""
        return [row.labels[0] if row.labels else "" for row in examples]

    @property
    def tunes(self) -> bool:
        """See `Task`: the thresholds and the temperature."""
        return self.threshold in (None, "tuned") or self.temperature == "tuned"

    @property
    def exclusive(self) -> bool:
        """See `Task`."""
        return False

    def tune(self, examples: Sequence[Row], predictions: Sequence[Labels]) -> MultiLabel:
        """See `Task`: the temperature with the smallest loss, then the thresholds."""
        names = tuple(predictions[0].scores)
        gold, probabilities = _gold(examples, names), scores_of(predictions, names)
        temperature, threshold = self.temperature, self.threshold
        if temperature == "tuned":
            temperature = find_temperature(_both(probabilities), gold.reshape(-1).astype(int))
            probabilities = at_temperature(_both(probabilities), temperature)[:, 1].reshape(gold.shape)
        if threshold is None:
            threshold = _common_threshold(gold, probabilities)
        elif threshold == "tuned":
            threshold = tuple(label_thresholds(gold, probabilities).tolist())
        return msgspec.structs.replace(self, temperature=temperature, threshold=threshold)

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> MultiLabelHead:
        """See `Task`.

        Raises:
            UserError: the number of weights, or of thresholds, differs from the number of labels.
        """
        check_number(self.threshold, labels)
        return MultiLabelHead(spec, len(labels), weights_of(self.weights, labels), self.focal)

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Row], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`."""
        targets = {"multi_label": soft_labels(examples, labels).astype(np.float32)} if gold else None

        def read(logits: np.ndarray, cut: Sequence[bool]) -> list[Labels]:
            predictions = []
            thresholds = self.thresholds(len(labels))
            for row, values, was_cut in zip(examples, logits, cut, strict=True):
                probabilities = self._probabilities(values)
                scores = dict(zip(labels, probabilities, strict=True))
                chosen = tuple(
                    name for name, value, least in zip(labels, probabilities, thresholds, strict=True) if value > least
                )
                predictions.append(Labels(row.values["text"], chosen, scores, row.values.get("text_b"), was_cut))
            return predictions

        return self.framed(tokenizer, examples, targets, read)

    def _probabilities(self, logits: np.ndarray) -> list[float]:
        """Return the probability of each label, given its logit, (labels,)."""
        probabilities: list[float] = (
            torch.from_numpy(logits.astype(np.float64) / divisor(self.temperature)).sigmoid().tolist()
        )
        return probabilities

    def thresholds(self, number: int) -> Sequence[float]:
        """Return the threshold of each label."""
        return self.threshold if isinstance(self.threshold, tuple) else [threshold_of(self.threshold)] * number

    @property
    def controls(self) -> dict[str, Any]:
        """See `Task`."""
        threshold = self.threshold if isinstance(self.threshold, tuple) else threshold_of(self.threshold)
        return {"several": True, "threshold": threshold}

    def decisions(self, logits: np.ndarray, labels: Sequence[str]) -> list[Decision]:
        """See `Task`: the predicted labels, or the most probable one."""
        probabilities = self._probabilities(logits[0])
        thresholds = self.thresholds(len(labels))
        chosen = [number for number, value in enumerate(probabilities) if value > thresholds[number]]
        temperature = divisor(self.temperature)
        return [
            Decision(0, number, labels[number], exclusive=False, temperature=temperature)
            for number in chosen or [int(logits[0].argmax())]
        ]

    def scored(self, prediction: Labels) -> list[Scored]:
        """See `RowTask`."""
        return [Scored(value, label, label in prediction.labels) for label, value in prediction.scores.items()]

    def predicted(self, prediction: Labels) -> dict[str, float]:
        """See `RowTask`: any number."""
        return {label: prediction.scores[label] for label in prediction.labels}

    def measure(self, examples: Sequence[Row], predictions: Sequence[Labels], labels: Sequence[str]) -> Measure:
        """See `Task`."""
        predicted, scores = _predicted(predictions, labels), scores_of(predictions, labels)
        measure = metrics.measure_label_sets(_gold(examples, labels), predicted, scores)
        if not are_soft(examples):
            return measure
        return metrics.with_soft_label_sets(measure, soft_labels(examples, labels), scores)

    def undefined(self, examples: Sequence[Row], predictions: Sequence[Any]) -> str:
        """See `Task`: recall and F1, if there is nothing to find."""
        return describe_nothing([self.labels_of(example) for example in examples])

    def details(self, examples: Sequence[Row], predictions: Sequence[Labels], labels: Sequence[str]) -> dict[str, Any]:
        """See `Task`: the scores of each label; what thresholds of single labels change.

        Of soft labels, also the distances by label; of votes, the agreement, a mean and by label.
        """
        gold, probabilities = _gold(examples, labels), scores_of(predictions, labels)
        predicted = _predicted(predictions, labels)
        by_label = metrics.by_label(gold, predicted, probabilities, labels)
        details: dict[str, Any] = {"by_label": by_label}
        if isinstance(self.threshold, tuple):
            without = probabilities > threshold_of(None)
            details["without_thresholds"] = measure_all(
                metrics.measure_label_sets(gold, without, probabilities), len(gold)
            )
            details["thresholds"] = compare(labels, np.array(self.threshold), gold, without, predicted)
        if are_soft(examples):
            distances = metrics.soft_sets_by_label(soft_labels(examples, labels), probabilities, labels)
            details["by_label"] = {label: scores | distances[label] for label, scores in by_label.items()}
            if votes := votes_of(examples):
                agreements = agreement_by_label(votes, labels)
                details["agreement"] = {**mean_agreement(agreements), "by_label": agreements}
        return details

    def constants(self, labels: Sequence[str]) -> list[Labels]:
        """See `Task`: the most frequent label, the two most frequent ones, and so on."""
        chosen = [tuple(labels[: number + 1]) for number in range(len(labels))]
        return [Labels("", names, {name: float(name in names) for name in labels}) for names in chosen]

    def calibration(self, examples: Sequence[Row], predictions: Sequence[Labels]) -> dict[str, float]:
        """See `Task`: every label of every text is one decision."""
        names = tuple(predictions[0].scores)
        gold = _gold(examples, names).reshape(-1).astype(int)
        return describe_calibration(_both(scores_of(predictions, names)), gold, self.temperature)

    def labelled(self, examples: Sequence[Row], predictions: Sequence[Labels]) -> list[Row]:
        """See `Task`."""
        pairs = zip(examples, predictions, strict=True)
        return [Row(row.values, row.file, row.line, prediction.labels) for row, prediction in pairs]

    def mistakes(self, examples: Sequence[Row], predictions: Sequence[Labels], labels: Sequence[str]) -> list[Mistake]:
        """See `Task`: texts with missed or spurious labels, by their number."""
        return [
            Mistake(
                passages(row),
                caption=f"{row.file}:{row.line}",
                score=len(set(row.labels or ()) ^ set(prediction.labels)),
                measure="missed or spurious labels",
                gold=", ".join(row.labels or ()) or "(none)",
                predicted=", ".join(prediction.labels) or "(none)",
                probabilities=prediction.scores,
            )
            for row, prediction in zip(examples, predictions, strict=True)
            if set(row.labels or ()) != set(prediction.labels)
        ]

    def line(self, prediction: Labels) -> str:
        """See `Task`."""
        names = ", ".join(f"{name} {prediction.scores[name]:.3f}" for name in prediction.labels)
        return f"{names or '(none)'}\t{joined_texts(prediction)}"


class MultiLabelHead(ProbedHead):
    """Head with one sigmoid per label, and its loss.

    Args:
        spec: the properties of the body under the head.
        num_labels: number of labels.
        weights: factors of the positive terms of the labels; empty: all 1.
        focal: exponent of the focal loss in training.
    """

    exclusive = False

    def __init__(self, spec: HeadSpec, num_labels: int, weights: Sequence[float] = (), focal: float = 0.0) -> None:
        super().__init__(spec, num_labels, bias=spec.bias)
        self.weights, self.focal = tuple(weights), focal

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`: one loss term per label, so that the mean is that of `BCEWithLogitsLoss`."""
        return sample.add(counts={name: self.out.out_features})

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`; accuracy is the share of labels on the right side of one half.

        Shape:
            labels of the batch: probabilities, (texts, labels) float32.
        """
        logits = self.predict(encoder, encoded, batch).float()  # (texts, labels)
        gold = self.gold(batch, "multi_label").view_as(logits)
        weights = to_device(torch.tensor(self.weights), gold.device) if self.weights else None
        if self.focal and self.training:
            losses = binary_focal_loss(logits, gold, self.focal, weights)  # (texts, labels)
        else:
            losses = binary_cross_entropy_with_logits(logits, gold, pos_weight=weights, reduction="none")
        if (examples := self.example_weights(batch)) is not None:
            losses = losses * examples[:, None]
        return Part(losses.sum(), {"accuracy": ((logits.detach() > 0) == (gold > 0.5)).sum()})

    def targets(self, batch: Batch) -> Tensor:
        """See `ProbedHead`."""
        return self.gold(batch, "multi_label").view(-1, self.out.out_features)

    def imitate(self, logits: Tensor, targets: Tensor, batch: Batch, temperature: float) -> Part:
        """See `Objective`: the cross-entropy of each label with the teacher's probability, as in `imitate_softmax`."""
        student, teacher = logits.float() / temperature, targets.float() / temperature
        loss = binary_cross_entropy_with_logits(student, teacher.sigmoid(), reduction="sum")
        least = binary_cross_entropy_with_logits(teacher, teacher.sigmoid(), reduction="sum")
        return Part(temperature**2 * (loss - least), {"agreement": ((student > 0) == (teacher > 0)).sum()})


def _common_threshold(gold: np.ndarray, probabilities: np.ndarray) -> float | tuple[float, ...]:
    """Return the threshold with the best micro F1, or if there are rare labels one of each label.

    Labels that are predicted as rarely as rare ones occur have the threshold of a single such label; see `by_shares`.

    Shape:
        gold: (examples, labels) bool; probabilities: (examples, labels).
    """
    threshold, shares = best_threshold(gold, probabilities), probabilities.mean(0)
    rare = shares < RARE
    if not rare.any():
        return threshold
    both = [by_shares(np.array([share, 1 - share]))[0] for share in shares]
    return tuple(np.where(rare, np.minimum(both, threshold), threshold).tolist())


def _gold(rows: Sequence[Row], labels: Sequence[str]) -> np.ndarray:
    """Return which labels rows have, (rows, labels) bool: of soft labels, those with a probability above one half."""
    return soft_labels(rows, labels) > 0.5


def _predicted(predictions: Sequence[Labels], labels: Sequence[str]) -> np.ndarray:
    """Return which labels are predicted, (predictions, labels) bool."""
    return np.array([[label in prediction.labels for label in labels] for prediction in predictions], bool)


def _both(probabilities: np.ndarray) -> np.ndarray:
    """Return the probabilities of not having and of having each label, (all labels of all texts, 2)."""
    flat = probabilities.reshape(-1)
    return np.stack([1 - flat, flat], 1)
