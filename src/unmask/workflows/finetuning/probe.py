"""Heads that begin as the logistic regression on the features of the encoder as it is (linear probing).

Input: a learner with an untrained head, and its samples. Output: the learner, its head fitted.

With few examples, that is the whole training: the regression has one minimum, which L-BFGS finds in a second, and the
strength of its regularization is what predicts examples best that it was not fitted on (cross-validation). By the same
predictions, its logits are then divided by a temperature, so that its probabilities are neither too sure nor too timid,
even where a few examples happen to be predicted well. With more examples, fine-tuning that begins there distorts the
features less than one that begins with a random head (Kumar et al. 2022).

The features are scaled to a mean squared norm of 1 before, so that the same grid of strengths suits every encoder; of
several layers, the last one counts most. The scales are then multiplied into the weights.

The loss is that of scikit-learn's `LogisticRegression` with C = 1 / l2: the sum of the cross-entropies, plus l2 / 2
times the squared norm of the weights; biases are not regularized, and 0 for a head without one. It is convex, so there
is nothing to choose but l2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, log_softmax

from unmask.data.batches.batch import Sample, collate, split
from unmask.objectives.learner import Learner
from unmask.tasks.holding_out import assign_folds
from unmask.tasks.pooled_head import ProbedHead
from unmask.tasks.tuning import find_temperature
from unmask.training.machine import Machine

MAX_STEPS = 500
TOLERANCE = 1e-4
"""Largest derivative of the mean loss at which the fit ends."""
STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Weights of the squared norm that are tried: inverses of scikit-learn's C."""
USUAL = 0.1
"""The weight where there is nothing to choose by: fewer than two labels have several texts."""
MAX_FOLDS = 8
"""Maximum number of folds of the cross-validation."""
LOWER = 0.3
"""Scale of all layers but the last, compared with it."""
TOKENS = 8192
"""Number of tokens of a batch."""


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


def fit_probe(
    features: Tensor, targets: Tensor, classes: int, l2: float, *, exclusive: bool = False, biased: bool = True
) -> Probe:
    """Fit a linear probe.

    Args:
        features: (examples, width), float.
        targets: the class of each example, (examples,) int64, for a softmax; or whether it is of each class,
            (examples, classes) of 0 and 1, for a sigmoid for each class.
        classes: number of classes; some may have no examples.
        l2: weight of the squared norm, above 0.
        exclusive: whether targets of (examples, classes) are for a softmax: the weight of each class of each example,
            such as its probability.
        biased: whether there is a bias; otherwise it is 0.
    """
    weights = features.new_zeros((classes, features.shape[1]), requires_grad=True)
    bias = features.new_zeros(classes, requires_grad=biased)
    search = torch.optim.LBFGS(
        [weights, bias] if biased else [weights],
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


@dataclass(frozen=True)
class Features:
    """What a head sees of examples.

    Attributes:
        vectors: what its linear layer reads, (examples, width).
        targets: the weight of each label, (examples, labels).
        exclusive: whether an example has one label.
        biased: whether the linear layer has a bias.
    """

    vectors: Tensor
    targets: Tensor
    exclusive: bool
    biased: bool = True

    def part(self, rows: np.ndarray) -> Features:
        """Return those of some examples."""
        index = torch.from_numpy(rows)
        return replace(self, vectors=self.vectors[index], targets=self.targets[index])

    def fit(self, strength: float) -> Probe:
        """Return the regression."""
        classes, kind = self.targets.shape[1], {"exclusive": self.exclusive, "biased": self.biased}
        return fit_probe(self.vectors, self.targets, classes, strength, **kind)

    def loss(self, logits: Tensor) -> float:
        """Return the summed cross-entropy of logits, (examples, labels)."""
        return float(summed_loss(logits, self.targets, exclusive=self.exclusive))

    def temperature(self, logits: Tensor) -> float:
        """Return what logits, (examples, labels), are to be divided by."""
        if self.exclusive:
            return find_temperature(logits.double().softmax(1).numpy(), self.targets.double().numpy())
        has = logits.double().sigmoid().reshape(-1).numpy()
        gold = self.targets.double().reshape(-1).numpy()
        return find_temperature(np.stack([1 - has, has], 1), np.stack([1 - gold, gold], 1))


def begin_with_probe(
    learner: Learner,
    part: str,
    samples: Sequence[Sample],
    texts: Sequence[Hashable],
    machine: Machine,
    prepare: Callable[[Sample], Sample],
) -> str:
    """Fit the last linear layer of a head to the features of samples.

    Args:
        learner: the learner; its head is modified in place.
        part: the name of the head.
        samples: the samples to learn from.
        texts: what is the same for samples with equal texts.
        machine: where the encoder computes.
        prepare: prepares a sample for the learner.

    Returns:
        A line about what was chosen.
    """
    head = learner.parts[part]
    assert isinstance(head, ProbedHead)
    order = sorted(range(len(samples)), key=lambda index: len(samples[index]))  # as batches have them
    features = _read(learner, head, [prepare(samples[index]) for index in order], machine)
    scales = _scales(features.vectors, learner.encoder.reads)
    scaled = replace(features, vectors=features.vectors * scales)
    strength, temperature, folds = cross_validate(scaled, [texts[index] for index in order])
    probe = scaled.fit(strength)
    with torch.no_grad():
        head.out.weight.copy_(probe.weights * scales / temperature)
        if head.out.bias is not None:
            head.out.bias.copy_(probe.bias / temperature)
    how = f"of {len(STRENGTHS)} by {folds}-fold cross-validation" if folds else "the usual one"
    calibrated = f", temperature {temperature:.2g}" if folds else ""
    return f"logistic regression on {len(samples):,} examples, C = {1 / strength:.3g} ({how}){calibrated}"


def cross_validate(features: Features, texts: Sequence[Hashable]) -> tuple[float, float, int]:
    """Return the strength and the temperature of regressions, by examples that they were not fitted on.

    Equal texts are in the same fold. A label with a single text, which no regression can learn and predict, is not
    judged by. If fewer than two others are left, the strength is the usual one, without folds, and the temperature 1.

    Returns:
        The strength whose regressions predict examples best, the temperature of these, the number of folds.
    """
    labels = features.targets.argmax(1).tolist() if features.exclusive else [0] * len(texts)
    firsts: dict[Hashable, int] = {}
    for text, label in zip(texts, labels, strict=True):
        firsts.setdefault(text, label)  # as `assign_folds` divides them
    counts = Counter(firsts.values())
    repeated = {label: count for label, count in counts.items() if count > 1}
    if len(repeated) < min(2, len(counts)):
        return USUAL, 1.0, 0
    number = min(MAX_FOLDS, *repeated.values())
    folds = assign_folds(texts, labels, number, seed=0)
    rows = [np.flatnonzero(folds == fold) for fold in range(number)]
    parts = [(features.part(np.flatnonzero(folds != fold)), features.part(rows[fold])) for fold in range(number)]
    back = torch.from_numpy(np.concatenate(rows).argsort())

    def predicted(strength: float) -> Tensor:
        return torch.cat([train.fit(strength).logits(held.vectors) for train, held in parts])[back]

    every = {strength: predicted(strength) for strength in STRENGTHS}
    judged = np.flatnonzero([label in repeated for label in labels])
    gold = features.part(judged)
    best = min(STRENGTHS, key=lambda strength: gold.loss(every[strength][judged]))
    return best, gold.temperature(every[best][judged]), number


@torch.no_grad()
def _read(learner: Learner, head: ProbedHead, samples: Sequence[Sample], machine: Machine) -> Features:
    """Return what a head reads of samples, without dropout, in float32 on the host."""
    training = learner.training
    learner.eval()
    vectors, targets = [], []
    for part in split(samples, TOKENS):
        batch = collate(part).to(machine.device)
        encoded = learner.encoder(batch.tokens, head.keep, batch.carry)
        vectors.append(head.vectors(learner.encoder, encoded, batch).float().cpu())
        targets.append(head.targets(batch).float().cpu())
    learner.train(training)
    return Features(torch.cat(vectors), torch.cat(targets), head.exclusive, head.out.bias is not None)


def _scales(vectors: Tensor, layers: Sequence[int]) -> Tensor:
    """Return the factor of each feature, (width,): the concatenated `layers` have equal norms, the last a larger."""
    blocks = torch.unflatten(vectors, 1, (max(1, len(layers)), -1))  # (examples, layers, width of a layer)
    norms = blocks.square().sum(2).mean(0).sqrt().clamp(min=torch.finfo(vectors.dtype).tiny)  # (layers,)
    shares = torch.full_like(norms, LOWER)
    shares[int(np.argmax(layers)) if layers else 0] = 1.0
    scales = shares / shares.norm() / norms
    return scales[:, None].expand(-1, blocks.shape[2]).reshape(-1)
