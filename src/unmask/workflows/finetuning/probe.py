"""Heads that begin as the logistic regression on the features of the encoder as it is (linear probing).

Input: a learner with an untrained head, and its samples. Output: the learner, its head fitted.

With few examples, that is the whole training: the regression has one minimum, and the strength of its regularization is
what predicts examples best that it was not fitted on (cross-validation). By the same predictions, its logits are then
divided by a temperature, so that its probabilities are neither too sure nor too timid, even where a few examples happen
to be predicted well. With more examples, fine-tuning that begins there distorts the features less than one that begins
with a random head (Kumar et al. 2022).

The features are scaled to a mean squared norm of 1 before, so that the same grid of strengths suits every encoder; of
several layers, the last one counts most. The scales are then multiplied into the weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.batch import Sample, collate, split
from unmask.objectives.learner import Learner
from unmask.tasks.holding_out import assign_folds
from unmask.tasks.pooled_head import ProbedHead
from unmask.tasks.tuning import find_temperature
from unmask.training.machine import Machine
from unmask.workflows.finetuning.logistic_regression import Probe, fit_probes, summed_loss

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


@dataclass(frozen=True)
class HeadInputs:
    """What a head sees of examples.

    Attributes:
        vectors: what its linear layer reads, (examples, width).
        targets: the weight of each label, (examples, labels).
        weights: the weight of each example, (examples,).
        exclusive: whether an example has one label.
        biased: whether the linear layer has a bias.
    """

    vectors: Tensor
    targets: Tensor
    weights: Tensor
    exclusive: bool
    biased: bool = True

    def part(self, rows: np.ndarray) -> HeadInputs:
        """Return those of some examples."""
        index = torch.from_numpy(rows)
        return replace(self, vectors=self.vectors[index], targets=self.targets[index], weights=self.weights[index])

    def fit(self, strengths: Sequence[float]) -> list[Probe]:
        """Return the regression of each strength."""
        classes, kind = self.targets.shape[1], {"exclusive": self.exclusive, "biased": self.biased}
        return fit_probes(self.vectors, self.targets, classes, strengths, weights=self.weights, **kind)

    def loss(self, logits: Tensor) -> float:
        """Return the summed cross-entropy of logits, (examples, labels)."""
        return float(summed_loss(logits, self.targets, weights=self.weights, exclusive=self.exclusive))

    def temperature(self, logits: Tensor) -> float:
        """Return what logits, (examples, labels), are to be divided by."""
        gold, weights = self.targets.double(), self.weights.double()[:, None]
        if self.exclusive:
            return find_temperature(logits.double().softmax(1).numpy(), (weights * gold).numpy())
        has = logits.double().sigmoid().reshape(-1)
        lacks_and_has = torch.stack([weights * (1 - gold), weights * gold], -1).reshape(-1, 2)
        return find_temperature(torch.stack([1 - has, has], 1).numpy(), lacks_and_has.numpy())


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
    counted = np.flatnonzero(features.weights.numpy() > 0)  # nothing is learned of others, nor judged by them
    features, order = features.part(counted), [order[place] for place in counted.tolist()]
    scales = _scales(features.vectors, learner.encoder.reads)
    scaled = replace(features, vectors=features.vectors * scales)
    strength, temperature, folds = cross_validate(scaled, [texts[index] for index in order])
    (probe,) = scaled.fit([strength])
    with torch.no_grad():
        head.out.weight.copy_(probe.weights * scales / temperature)
        if head.out.bias is not None:
            head.out.bias.copy_(probe.bias / temperature)
    chosen = f"logistic regression on {len(order):,} examples, C = {1 / strength:.3g}"
    if not folds:
        return f"{chosen}, the usual one; to choose it, and to calibrate probabilities, two labels need two texts each"
    return f"{chosen} (of {len(STRENGTHS)} by {folds}-fold cross-validation), temperature {temperature:.2g}"


def cross_validate(features: HeadInputs, texts: Sequence[Hashable]) -> tuple[float, float, int]:
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
    back = torch.from_numpy(np.concatenate(rows).argsort())
    logits: dict[float, list[Tensor]] = {strength: [] for strength in STRENGTHS}  # by strength, of each fold
    for held in rows:
        vectors = features.vectors[torch.from_numpy(held)]
        others = features.part(np.delete(np.arange(len(texts)), held))
        for strength, probe in zip(STRENGTHS, others.fit(STRENGTHS), strict=True):
            logits[strength].append(probe.logits(vectors))
    every = {strength: torch.cat(parts)[back] for strength, parts in logits.items()}
    judged = np.flatnonzero([label in repeated for label in labels])
    gold = features.part(judged)
    best = min(STRENGTHS, key=lambda strength: gold.loss(every[strength][judged]))
    return best, gold.temperature(every[best][judged]), number


@torch.no_grad()
def _read(learner: Learner, head: ProbedHead, samples: Sequence[Sample], machine: Machine) -> HeadInputs:
    """Return what a head reads of samples, without dropout, in float32 on the host."""
    training = learner.training
    learner.eval()
    vectors, targets, weights = [], [], []
    for part in split(samples, TOKENS):
        batch = collate(part).to(machine.device)
        encoded = learner.encoder(batch.tokens, head.keep, batch.carry)
        vectors.append(head.vectors(learner.encoder, encoded, batch).float().cpu())
        targets.append(head.targets(batch).float().cpu())
        of_examples = head.example_weights(batch)
        weights.append(torch.ones(len(targets[-1])) if of_examples is None else of_examples.cpu())
    learner.train(training)
    biased = head.out.bias is not None
    return HeadInputs(torch.cat(vectors), torch.cat(targets), torch.cat(weights), head.exclusive, biased)


def _scales(vectors: Tensor, layers: Sequence[int]) -> Tensor:
    """Return the factor of each feature, (width,): the concatenated `layers` have equal norms, the last a larger."""
    blocks = torch.unflatten(vectors, 1, (max(1, len(layers)), -1))  # (examples, layers, width of a layer)
    norms = blocks.square().sum(2).mean(0).sqrt().clamp(min=torch.finfo(vectors.dtype).tiny)  # (layers,)
    shares = torch.full_like(norms, LOWER)
    shares[int(np.argmax(layers)) if layers else 0] = 1.0
    scales = shares / shares.norm() / norms
    return scales[:, None].expand(-1, blocks.shape[2]).reshape(-1)
