"""Logistic regressions on the vectors of a few thousand examples, for several strengths of their regularization.

The loss is that of scikit-learn's `LogisticRegression` with C = 1 / l2: the sum of the cross-entropies, plus l2 / 2
times the squared norm of the weights; biases are not regularized, and 0 for a head without one. It is convex, so there
is nothing to choose but l2. Where the minimum is at infinity, as a label has no examples, the bias of that label is
large: a softmax gives it next to nothing, a sigmoid the probability 1 / (examples + 2) (Laplace's rule of succession).

Vectors of encoders are far from independent, and weak regularization lets a plain L-BFGS take hundreds of steps. Here,
it works on the principal components, no more of them than examples, each divided by the root of its curvature: where
probabilities were equally certain everywhere, the first step would be the last (Böhning 1992). A regression begins at
the next stronger one. In float64 and numpy, as most of these are so small that the calls are what takes time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, log_softmax, one_hot

MAX_STEPS = 500
TOLERANCE = 1e-6
"""Largest norm of the gradient of the mean loss at which a fit ends."""
HISTORY = 20
"""Number of steps from which L-BFGS estimates the curvature."""
NEVER = 30.0
"""How far below all other logits of the examples those of a label without examples are."""
CERTAIN = 1e-3
"""Smallest variance of a label, p (1 - p), that the curvature is scaled by."""
Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""Return the value and the gradient of a function."""


class Probe(NamedTuple):
    """A linear layer: weights, (classes, width), and bias, (classes,)."""

    weights: Tensor
    bias: Tensor

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits of vectors, (examples, classes)."""
        return features @ self.weights.T + self.bias


def summed_loss(logits: Tensor, targets: Tensor, *, weights: Tensor | None = None, exclusive: bool = False) -> Tensor:
    """Return the sum of the cross-entropies of logits, (examples, classes); the other arguments are of `fit_probes`."""
    if targets.ndim == 1:
        targets, exclusive = one_hot(targets, logits.shape[1]), True
    if exclusive:
        losses = -targets * log_softmax(logits, 1)
    else:
        losses = binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")
    return (losses if weights is None else losses * weights[:, None]).sum()


def fit_probes(
    features: Tensor,
    targets: Tensor,
    classes: int,
    strengths: Sequence[float],
    *,
    weights: Tensor | None = None,
    exclusive: bool = False,
    biased: bool = True,
) -> list[Probe]:
    """Fit a linear probe for each strength.

    Args:
        features: (examples, width), float.
        targets: the class of each example, (examples,) int64, for a softmax; or whether it is of each class,
            (examples, classes) of 0 and 1, for a sigmoid for each class.
        classes: number of classes; some may have no examples.
        strengths: weights of the squared norm, above 0.
        weights: the weight of each example in the loss, (examples,), not below 0; None: all 1.
        exclusive: whether targets of (examples, classes) are for a softmax: the weight of each class of each example,
            such as its probability.
        biased: whether there is a bias; otherwise it is 0.
    """
    if targets.ndim == 1:
        targets, exclusive = one_hot(targets, classes), True
    gold, vectors = targets.double().numpy(), features.numpy().astype(np.float64)
    sums = gold.sum(1, keepdims=True) if exclusive else np.ones((len(gold), 1))  # the weight of each example
    if weights is not None:
        of_examples = weights.double().numpy()[:, None]
        gold, sums = gold * of_examples, sums * of_examples
    learned: np.ndarray = np.ones(classes, bool)  # which labels have a minimum
    if biased:
        learned &= gold.any(0)
        if not exclusive:
            learned &= (gold < sums).any(0)
    center = vectors.mean(0) if biased else np.zeros(vectors.shape[1])
    vectors -= center
    directions = _principal_directions(vectors)
    rank = directions.shape[1]
    inputs = np.ones((len(vectors), rank + int(biased)))  # (examples, components and bias)
    np.matmul(vectors, directions, out=inputs[:, :rank])
    fitted: dict[float, Probe] = {}
    layer = np.zeros((inputs.shape[1], int(learned.sum())))
    for strength in sorted(strengths, reverse=True):
        penalty = np.full((inputs.shape[1], 1), strength)
        penalty[rank:] = 0
        layer = _fit(inputs, gold[:, learned], sums, layer, penalty, exclusive=exclusive)
        outer, bias = np.zeros((len(directions), classes)), np.zeros(classes)
        outer[:, learned] = directions @ layer[:rank]
        if biased:
            bias[learned] = layer[-1] - center @ outer[:, learned]
            lowest = (inputs @ layer).min(initial=0.0) - NEVER
            bias[~learned] = lowest if exclusive else np.where(gold.any(0), 1, -1)[~learned] * np.log(len(gold) + 1)
        fitted[strength] = Probe(
            torch.from_numpy(outer.T).to(features.dtype), torch.from_numpy(bias).to(features.dtype)
        )
    return [fitted[strength] for strength in strengths]


def _principal_directions(vectors: np.ndarray) -> np.ndarray:
    """Return the directions of the principal components of vectors, (width, rank)."""
    wide = vectors.shape[0] < vectors.shape[1]
    variances, basis = np.linalg.eigh(vectors @ vectors.T if wide else vectors.T @ vectors)
    kept = variances > len(variances) * np.finfo(float).eps * variances.max(initial=0.0)
    return np.asarray(vectors.T @ (basis[:, kept] / np.sqrt(variances[kept])) if wide else basis[:, kept])


def _fit(
    inputs: np.ndarray, gold: np.ndarray, sums: np.ndarray, layer: np.ndarray, penalty: np.ndarray, *, exclusive: bool
) -> np.ndarray:
    """Return the linear layer with the smallest loss, (inputs, classes), beginning at one.

    Shape:
        gold: the weight of each class of each example, (examples, classes); sums: that of each example, (examples, 1).
    """
    examples = len(inputs)

    def normalized(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the logarithms of what normalizes the probabilities, and these."""
        if not exclusive:
            return np.logaddexp(0, logits), 1 / (1 + np.exp(-logits.clip(-700, 700)))
        top = logits.max(1, keepdims=True)
        shares = np.exp(logits - top)
        totals = shares.sum(1, keepdims=True)
        return top + np.log(totals), shares / totals

    def evaluate(layer: np.ndarray) -> tuple[float, np.ndarray]:
        logits = inputs @ layer
        normalizers, chances = normalized(logits)
        loss = (sums * normalizers).sum() - (gold * logits).sum() + (penalty * layer**2).sum() / 2
        return float(loss / examples), (inputs.T @ (sums * chances - gold) + penalty * layer) / examples

    _, chances = normalized(inputs @ layer)
    variance = max(CERTAIN, float((chances * (1 - chances)).mean()))
    curvature = (variance * (inputs**2).sum(0)[:, None] + penalty) / examples
    return minimize(evaluate, layer, 1 / np.sqrt(curvature))


def minimize(evaluate: Evaluate, start: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the minimum of a smooth convex function by L-BFGS (Nocedal and Wright 2006, algorithm 7.5).

    Args:
        evaluate: the function.
        start: where to begin.
        scale: by what each parameter is multiplied, so that all have about the same curvature.
    """
    point, steps = start, deque[tuple[np.ndarray, np.ndarray, float]](maxlen=HISTORY)
    value, slope = evaluate(point)
    for _ in range(MAX_STEPS):
        if np.linalg.norm(slope) <= TOLERANCE:
            break
        direction = -scale * _inverse(scale * slope, steps)
        expected, size = float(np.vdot(direction, slope)), 1.0
        while True:  # halved until the value falls as the slope promises (Armijo)
            ahead, (lower, steeper) = point + size * direction, evaluate(point + size * direction)
            if lower <= value + 1e-4 * size * expected or size < 1e-9:
                break
            size /= 2
        if lower >= value:
            break  # as low as float64 can tell
        move, change = (ahead - point) / scale, scale * (steeper - slope)
        if (product := float(np.vdot(move, change))) > 0:
            steps.append((move, change, product))
        point, value, slope = ahead, lower, steeper
    return point


def _inverse(slope: np.ndarray, steps: Sequence[tuple[np.ndarray, np.ndarray, float]]) -> np.ndarray:
    """Return the product of the estimated inverse of the Hessian and a gradient (algorithm 7.4)."""
    shares: list[float] = []
    for move, change, product in reversed(steps):
        shares.append(float(np.vdot(move, slope)) / product)
        slope = slope - shares[-1] * change
    if steps:
        _, change, product = steps[-1]
        slope = slope * (product / float(np.vdot(change, change)))
    for (move, change, product), share in zip(steps, reversed(shares), strict=True):
        slope = slope + (share - float(np.vdot(change, slope)) / product) * move
    return slope
