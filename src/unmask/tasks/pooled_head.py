"""Base of the heads that read a whole text: dropout and one linear layer over the pooled [CLS].

Devlin et al. 2019, section 4.1. RoBERTa and ELECTRA also have dropout before the pooler (`RobertaClassificationHead` in
transformers, as in fairseq). ELECTRA's reference implementation has no pooler here, only a linear layer on [CLS], but
published fine-tuned models have the head of transformers (`ElectraClassificationHead`); this one is compatible with it.

The heads that classify can be regularized, for little data, by label smoothing and R-Drop, or have the focal loss, for
rare labels. They change the loss in training only: held-out losses remain comparable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, cast

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, logsigmoid, one_hot

from unmask.data.batches.batch import GROUP, Batch, Sample
from unmask.nn.encoders.encoder import POOLER, Encoded, Encoder, HeadSpec, WithPooler, text_rows, text_vectors
from unmask.nn.layers.dropout import Dropout
from unmask.nn.layers.vocabulary import count_correct
from unmask.objectives.objective import Objective, Part
from unmask.support.errors import UserError, counted
from unmask.tasks.gold_labels import EXAMPLE_WEIGHTS


class Regularization(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The recipe's [task.regularization].

    Attributes:
        label_smoothing: share of each target that is spread over all labels (Szegedy et al. 2016, section 7).
        r_drop: weight of the divergence of two passes with different dropout (Liang et al. 2021, equation 4), which
            almost doubles the time of a step; 0: a single pass.
    """

    label_smoothing: float = 0.0
    r_drop: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ValueError("label_smoothing must be at least 0 and below 1")
        if not 0 <= self.r_drop < math.inf:
            raise ValueError("r_drop must not be negative")


Weights = tuple[float, ...] | Literal["balanced"]
"""Weights of the labels in the loss, in the model's order; empty: all 1; "balanced" until the examples are counted."""


def check_weights(weights: Weights) -> None:
    """Raise a ValueError for weights that are not positive numbers."""
    if weights != "balanced" and not all(0 < weight < math.inf for weight in weights):
        raise ValueError("weights must be above 0")


def weights_of(weights: Weights, labels: Sequence[str]) -> tuple[float, ...]:
    """Return the weight of each label; empty: all 1.

    Raises:
        UserError: the number of weights differs from the number of labels.
    """
    if weights == "balanced" or not weights:
        return ()
    if len(weights) != len(labels):
        raise UserError(
            f"{counted(len(weights), 'weight')} for {len(labels)} labels",
            remedy=f"give one each for {', '.join(labels)}",
        )
    return weights


def check_focal(focal: float) -> None:
    """Raise a ValueError for an exponent of the focal loss that is negative or not finite."""
    if not 0 <= focal < math.inf:
        raise ValueError("focal must not be negative")


NONE = Regularization()
TUNED: dict[str, Any] = {"regularization": NONE, "temperature": 1.0}
"""See `Training.tuned`: what classifiers of texts and words have."""


def score(
    head: Objective,
    regularization: Regularization,
    encoder: Encoder,
    encoded: Encoded,
    batch: Batch,
    gold: Tensor,
    weights: Tensor | None = None,
    soft: Tensor | None = None,
    focal: float = 0.0,
) -> Part:
    """Return the cross-entropy of a head, regularized in training, and the number of correct predictions.

    With soft labels it is that with the distribution, smoothed likewise; weights multiply the term of each label. The
    sum of a distribution is the weight of its example.

    With R-Drop the cross-entropy is the mean of the two, as in the authors' code (dropreg/R-Drop), and the weights of a
    target multiply the divergence, too. In training it can be the focal loss, with an exponent above 0; see
    `focal_loss`.

    Shape:
        gold: (targets,) int64; weights of the labels in the cross-entropy: (labels,) float32;
        soft labels, the distribution of each target: (targets, labels) float32.
    """
    chosen = regularization if head.training else NONE
    targets = gold if soft is None else soft

    def loss_of(logits: Tensor) -> Tensor:
        if focal and head.training:
            return focal_loss(logits, targets, focal, weights, chosen.label_smoothing)
        if soft is not None:
            return cross_entropy(logits, smoothed(soft, chosen.label_smoothing), weights, reduction="sum")
        return cross_entropy(logits, gold, weights, reduction="sum", label_smoothing=chosen.label_smoothing)

    logits = head.predict(encoder, encoded, batch).float()
    loss = loss_of(logits)
    if chosen.r_drop:
        again = head.predict(encoder, encoder(batch.tokens), batch).float()
        apart = divergence(logits, again)
        if (factors := _target_weights(targets, weights)) is not None:
            apart = apart * factors
        loss = (loss + loss_of(again)) / 2 + chosen.r_drop * apart.sum()
    return Part(loss, {"accuracy": count_correct(logits.detach(), gold)})


def _target_weights(targets: Tensor, weights: Tensor | None) -> Tensor | None:
    """Return the weight of each target, (targets,), given those of the labels; None: all 1. See `focal_loss`."""
    if targets.ndim == 1:
        return None if weights is None else weights[targets]
    return targets.sum(1) if weights is None else targets @ weights


def smoothed(shares: Tensor, smoothing: float) -> Tensor:
    """Return distributions, (targets, labels), with a part of each spread over all labels; sums remain."""
    return (1 - smoothing) * shares + smoothing * shares.float().mean(1, keepdim=True)


def focal_loss(
    logits: Tensor, targets: Tensor, gamma: float, weights: Tensor | None = None, smoothing: float = 0.0
) -> Tensor:
    """Return the focal loss of a softmax, summed over targets (Lin et al. 2017, equations 4 and 5).

    The term of each label in the cross-entropy, -log p, is multiplied by (1 - p)^gamma, so that what is predicted well
    already counts less; gamma = 0 is the cross-entropy.

    Args:
        logits: (targets, labels).
        targets: the index of each label, (targets,) int64, or distributions, (targets, labels).
        gamma: the exponent, at least 0.
        weights: the alpha of each label, (labels,); None: all 1.
        smoothing: share of each target that is spread over all labels.
    """
    labels = logits.shape[1]
    shares = smoothed(one_hot(targets, labels) if targets.ndim == 1 else targets, smoothing)
    log_p = log_softmax(logits, 1)
    terms = shares * _power(-log_p.expm1(), gamma) * log_p  # (targets, labels)
    return -(terms if weights is None else terms * weights).sum()


def binary_focal_loss(logits: Tensor, targets: Tensor, gamma: float, weights: Tensor | None = None) -> Tensor:
    """Return the focal loss of one sigmoid per label, (texts, labels); see `focal_loss`.

    Args:
        logits: (texts, labels).
        targets: probabilities, (texts, labels).
        gamma: the exponent, at least 0; 0 is `BCEWithLogitsLoss`.
        weights: factor of the positive term of each label, (labels,), its `pos_weight`; None: all 1.
    """
    yes = targets * _power(logits.neg().sigmoid(), gamma) * logsigmoid(logits)  # (texts, labels)
    no = (1 - targets) * _power(logits.sigmoid(), gamma) * logsigmoid(-logits)
    return -((yes if weights is None else yes * weights) + no)


def _power(probabilities: Tensor, gamma: float) -> Tensor:
    """Return a power of probabilities whose gradient is finite: at 0, that of an exponent below 1 is not."""
    return probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny) ** gamma


def divergence(first: Tensor, second: Tensor) -> Tensor:
    """Return the mean of the two Kullback-Leibler divergences of two distributions, (targets,).

    Shape:
        first, second: logits, (targets, labels).
    """
    first, second = log_softmax(first, -1), log_softmax(second, -1)
    forward = kl_div(first, second, reduction="none", log_target=True)
    return (forward + kl_div(second, first, reduction="none", log_target=True)).sum(-1) / 2


class PooledHead(Objective):
    """Dropout and a linear layer over the pooled vector. Subclasses define `score`.

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
        return cast(WithPooler, encoder).pooler(self.below(rows)) if POOLER in encoder.provides else rows

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the outputs of the linear layer, (vectors, outputs)."""
        return self.out(self.dropout(self.vectors(encoder, encoded, batch)))


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

    def example_weights(self, batch: Batch) -> Tensor | None:
        """Return the weight of each text in the loss, (texts,); None: all 1."""
        return self.gold(batch, EXAMPLE_WEIGHTS).squeeze(1) if EXAMPLE_WEIGHTS in batch.labels else None


class ProbedHead(TextHead):
    """A head that may begin as a logistic regression; see `unmask.workflows.finetuning.probe`.

    Attributes:
        exclusive: whether a text has one label.
    """

    exclusive: bool

    def targets(self, batch: Batch) -> Tensor:
        """Return the weight of each label of each text in the loss, (texts, labels), but for those of the texts."""
        raise NotImplementedError


def _members(batch: Batch) -> Tensor:
    """Return which sequences of a batch belong to which sample, (samples, sequences) bool."""
    group = batch.labels[GROUP]  # (sequences,)
    samples = sum(key[-1] == 0 for key in batch.keys)  # the first sequence of each: known on the host
    return group == torch.arange(samples, device=group.device)[:, None]
