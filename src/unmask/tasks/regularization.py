"""Regularization of the heads that classify, for little data: label smoothing and R-Drop.

Both change the loss in training only: held-out losses remain comparable.
"""

from __future__ import annotations

import math
from typing import Protocol

import msgspec
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from unmask.data.batches.batch import Batch
from unmask.nn.encoders.encoder import Encoded, Encoder
from unmask.nn.layers.vocabulary import count_correct
from unmask.objectives.objective import Part


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


NONE = Regularization()


class Classifier(Protocol):
    """A head that classifies.

    Attributes:
        training: whether it is being trained.
        regularization: what changes its loss then.
    """

    training: bool
    regularization: Regularization

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the logits, (targets, labels)."""
        ...


def score(
    head: Classifier, encoder: Encoder, encoded: Encoded, batch: Batch, gold: Tensor, weights: Tensor | None = None
) -> Part:
    """Return the cross-entropy of a head, regularized in training, and the number of correct predictions.

    With R-Drop the cross-entropy is the mean of the two, as in the authors' code (dropreg/R-Drop).

    Shape:
        gold: (targets,) int64; weights of the labels in the cross-entropy: (labels,) float32.
    """
    chosen = head.regularization if head.training else NONE

    def loss_of(logits: Tensor) -> Tensor:
        return cross_entropy(logits, gold, weights, reduction="sum", label_smoothing=chosen.label_smoothing)

    logits = head.predict(encoder, encoded, batch).float()
    loss = loss_of(logits)
    if chosen.r_drop:
        again = head.predict(encoder, encoder(batch.tokens), batch).float()
        loss = (loss + loss_of(again)) / 2 + chosen.r_drop * divergence(logits, again)
    return Part(loss, {"accuracy": count_correct(logits.detach(), gold)})


def divergence(first: Tensor, second: Tensor) -> Tensor:
    """Return the mean of the two Kullback-Leibler divergences of two distributions, summed over targets.

    Shape:
        first, second: logits, (targets, labels).
    """
    one, two = log_softmax(first, -1), log_softmax(second, -1)
    both = kl_div(one, two, reduction="sum", log_target=True) + kl_div(two, one, reduction="sum", log_target=True)
    return both / 2


def second_pass_flops(head: Classifier, encoder: Encoder, batch: Batch) -> int:
    """Return the FLOPs of the encoder's second pass; see `Encoder.forward_flops`."""
    return encoder.forward_flops(batch.tokens) if head.training and head.regularization.r_drop else 0
