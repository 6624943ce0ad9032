"""Linear probe: logistic regression on stored vectors, fitted by L-BFGS.

Input: vectors, (examples, width), and their classes. Output: the weights of a linear layer.

The loss is that of scikit-learn's `LogisticRegression` with C = 1 / l2: the sum of the cross-entropies, plus l2 / 2
times the squared norm of the weights; biases are not regularized. It is convex, so there is nothing to choose but l2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, log_softmax

MAX_STEPS = 500
TOLERANCE = 1e-4
"""Largest derivative of the mean loss at which the fit ends."""


class Probe(NamedTuple):
    """A linear layer: weights, (classes, width), and bias, (classes,)."""

    weights: Tensor
    bias: Tensor

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits of vectors, (examples, classes)."""
        return features @ self.weights.T + self.bias


def summed_loss(logits: Tensor, targets: Tensor, *, exclusive: bool = False) -> Tensor:
    """Return the sum of the cross-entropies of logits, (examples, classes); the other arguments are of `fit_probe`."""
    if targets.ndim == 1:
        return cross_entropy(logits, targets, reduction="sum")
    if exclusive:
        return -(targets * log_softmax(logits, 1)).sum()
    return binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="sum")


def fit_probe(features: Tensor, targets: Tensor, classes: int, l2: float, *, exclusive: bool = False) -> Probe:
    """Fit a linear probe.

    Args:
        features: (examples, width), float.
        targets: the class of each example, (examples,) int64, for a softmax; or whether it is of each class,
            (examples, classes) of 0 and 1, for a sigmoid for each class.
        classes: number of classes; some may have no examples.
        l2: weight of the squared norm, above 0.
        exclusive: whether targets of (examples, classes) are for a softmax: the weight of each class of each example,
            such as its probability.
    """
    weights = features.new_zeros((classes, features.shape[1]), requires_grad=True)
    bias = features.new_zeros(classes, requires_grad=True)
    search = torch.optim.LBFGS(
        [weights, bias],
        max_iter=MAX_STEPS,
        history_size=20,
        tolerance_grad=TOLERANCE,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        search.zero_grad()
        logits = features @ weights.T + bias  # (examples, classes)
        loss = summed_loss(logits, targets, exclusive=exclusive)
        loss = (loss + l2 / 2 * weights.square().sum()) / len(features)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    search.step(closure)  # type: ignore[no-untyped-call]
    return Probe(weights.detach(), bias.detach())
