"""Out-of-fold probabilities: what a linear probe, trained on the other examples, says about the label of each.

Input: a model, whose encoder stays as it is; examples, their labels and their folds. Output: vectors of texts or words,
and the verdict on each label by confident learning (metrics/label_quality.py).

The vector of a text is the mean of its tokens in the last layer, that of a word its first subword there. The vectors
are scaled to a mean of 0 and a standard deviation of 1 by those that the probe is trained on. How strongly it is
regularized is chosen among `STRENGTHS` by the loss on the first fold.

What a probe says of a text is multiplied by what the texts nearest to it are labeled (`with_neighbors`), if that agrees
with clearly more labels: a probe that has few examples of many classes fits wrong labels, too, and neighbors make other
mistakes. Of words, whose classes planes part well, a probe alone ranks more wrong labels first. What fine-tuned models
say, if they are trained (finetuned.py), is averaged with that geometrically.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.tagged_sentence import TaggedSentence
from unmask.families.checkpoints.sentence_modules import Pooling
from unmask.inference.backend import TorchBackend
from unmask.inference.pooling import embed_samples
from unmask.inference.search import BLOCK, Nearest
from unmask.metrics.label_quality import confident_joint, noise_rate, probably_wrong, self_confidence
from unmask.tasks.rows import frame_rows
from unmask.tasks.token_classification import TokenClassification
from unmask.workflows.finetuning.logistic_regression import fit_probes, summed_loss

LONGEST = 512
"""Maximum number of tokens of a text that are read."""
STRENGTHS = (1.0, 10.0, 100.0, 1000.0)
"""Weights of the squared norm of the probe among which one is chosen."""
NEIGHBORS = 20
"""Number of texts whose labels count, those nearest by the cosine of their centered vectors."""
TEMPERATURE = 0.2
"""What cosines are divided by before their exponentials weight the neighbors."""
SMOOTHING = 1e-3
"""Added to probabilities that others are multiplied by, so that none rules out a class by itself."""
ERRORS = 2.0
"""Standard errors by which more labels must be agreed with for neighbors to count."""
Estimate = Callable[[Tensor, Tensor, np.ndarray, int], np.ndarray]
"""Returns out-of-fold probabilities; see `out_of_fold`."""


@dataclass(frozen=True)
class Verdicts:
    """What the probabilities say about labels.

    Attributes:
        probability: that of each label, (labels,); nan for those that are not judged.
        suggested: the most probable class instead, (labels,) int.
        wrong: whether the label is probably wrong, (labels,) bool.
        noise: the estimated share of wrong labels.
        agreement: the share of labels that are the most probable ones.
    """

    probability: np.ndarray
    suggested: np.ndarray
    wrong: np.ndarray
    noise: float
    agreement: float


def text_vectors(backend: TorchBackend, rows: Sequence[Row], notes: list[str]) -> Tensor:
    """Return the vector of each text or pair of texts, (texts, width); `notes` receives what was truncated."""
    encoder, tokenizer = backend.model.encoder, backend.model.tokenizer
    framed = frame_rows(tokenizer, rows, min(LONGEST, encoder.longest))
    notes += map(str, framed.notes)
    return torch.from_numpy(embed_samples(backend, backend.model, framed.samples, Pooling()))


def word_vectors(
    backend: TorchBackend, sentences: Sequence[TaggedSentence], labels: Sequence[str], layers: Sequence[int]
) -> Tensor:
    """Return the mean over layers of the first token of each word, which taggers read, (words, width).

    Args:
        backend: computes the layers.
        sentences: the words.
        labels: those of the task.
        layers: numbers of the layers.
    """
    encoder = backend.model.encoder
    task = TokenClassification(length=min(TokenClassification().length, encoder.longest))
    samples = task.frame(backend.model.tokenizer, sentences, labels, gold=False).samples
    starts = np.cumsum([0, *(len(sample.positions["first"]) for sample in samples)])
    vectors = np.empty((int(starts[-1]), encoder.width), np.float32)
    for number, rows in backend.layers(samples, layers, at="first"):  # (words, layers, width)
        vectors[starts[number] : starts[number + 1]] = rows.mean(1)
    return torch.from_numpy(vectors)


def judge_classes(
    features: Tensor, labels: np.ndarray, folds: np.ndarray, estimate: Estimate, finetuned: np.ndarray | None = None
) -> Verdicts:
    """Return the verdict on each label, one of several classes; those of a class in a single fold are not judged.

    Args:
        features: (examples, width).
        labels: the class of each example, (examples,) int.
        folds: the fold of each example, (examples,) int.
        estimate: `out_of_fold` or `with_neighbors`.
        finetuned: out-of-fold probabilities of fine-tuned models, (examples, classes), which count, too; None: none.
    """
    pairs = np.unique(np.stack([labels, folds], 1), axis=0)
    judged = np.bincount(pairs[:, 0])[labels] > 1
    verdicts = _unjudged(labels)
    classes, compact = np.unique(labels[judged], return_inverse=True)
    if len(classes) < 2:
        return verdicts
    probabilities = estimate(features[judged], torch.from_numpy(compact), folds[judged], len(classes))
    if finetuned is not None:
        probabilities = _product(probabilities, finetuned[judged][:, classes], 0.5)
    verdicts.probability[judged] = self_confidence(compact, probabilities)
    verdicts.suggested[judged] = classes[_without(compact, probabilities).argmax(1)]
    verdicts.wrong[judged] = probably_wrong(compact, probabilities)
    return Verdicts(
        verdicts.probability,
        verdicts.suggested,
        verdicts.wrong,
        noise_rate(confident_joint(compact, probabilities)),
        float((probabilities.argmax(1) == compact).mean()),
    )


def judge_sets(
    features: Tensor, targets: np.ndarray, folds: np.ndarray, finetuned: np.ndarray | None = None
) -> list[Verdicts]:
    """Return the verdicts on the labels of texts that may have several, by label, each a question of yes or no.

    Args:
        features: (examples, width).
        targets: whether each example has each label, (examples, labels) bool.
        folds: the fold of each example, (examples,) int.
        finetuned: see `judge_classes`; (examples, labels).
    """
    judged = [
        all(len(np.unique(folds[targets[:, number] == side])) > 1 for side in (False, True))
        for number in range(targets.shape[1])
    ]
    every = [_unjudged(column) for column in targets.T.astype(int)]
    columns = np.flatnonzero(judged)
    if not len(columns):
        return every
    chosen = targets[:, columns]
    probabilities = out_of_fold(features, torch.from_numpy(chosen), folds, len(columns))
    for place, number in enumerate(columns):
        both = _no_and_yes(probabilities[:, place])
        if finetuned is not None:
            both = _product(both, _no_and_yes(finetuned[:, number]), 0.5)
        given = chosen[:, place].astype(int)
        every[number] = Verdicts(
            self_confidence(given, both),
            1 - given,
            probably_wrong(given, both),
            noise_rate(confident_joint(given, both)),
            float((both.argmax(1) == given).mean()),
        )
    return every


def out_of_fold(features: Tensor, targets: Tensor, folds: np.ndarray, classes: int) -> np.ndarray:
    """Return the probabilities of the classes by a probe trained on the other folds, (examples, classes) float64.

    Args:
        features: (examples, width).
        targets: as in `fit_probes`.
        folds: the fold of each example, (examples,) int; at least two different ones.
        classes: number of classes.
    """
    numbers = torch.from_numpy(folds)
    several = targets.ndim == 2
    probabilities = np.empty((len(folds), classes))
    strengths: Sequence[float] = STRENGTHS  # of which the first fold chooses one
    for fold in np.unique(folds):
        apart = numbers == int(fold)
        inside, outside = _scaled(features[~apart], features[apart])
        probes = fit_probes(inside, targets[~apart], classes, strengths)
        if len(probes) > 1:
            losses = [float(summed_loss(probe.logits(outside), targets[apart])) for probe in probes]
            best = losses.index(min(losses))
            strengths, probes = strengths[best : best + 1], probes[best : best + 1]
        logits = probes[0].logits(outside).double()
        probabilities[apart.numpy()] = logits.sigmoid() if several else logits.softmax(1)
    return probabilities


def with_neighbors(features: Tensor, targets: Tensor, folds: np.ndarray, classes: int) -> np.ndarray:
    """Return the probabilities of `out_of_fold`, or their products with `neighbor_shares`.

    The products are returned if they agree with more labels by at least two standard errors. Arguments and result are
    those of `out_of_fold`, with one class for each example.
    """
    alone = out_of_fold(features, targets, folds, classes)
    together = _product(alone, neighbor_shares(features, targets, folds, classes))
    agrees, alone_agrees = (part.argmax(1) == targets.numpy() for part in (together, alone))
    gained, lost = (agrees & ~alone_agrees).sum(), (alone_agrees & ~agrees).sum()
    return together if gained - lost > ERRORS * np.sqrt(gained + lost) else alone


def neighbor_shares(features: Tensor, targets: Tensor, folds: np.ndarray, classes: int) -> np.ndarray:
    """Return the share of each class among the nearest examples of other folds, weighted by the softmax of cosines.

    Arguments and result are those of `out_of_fold`, with one class for each example.
    """
    vectors, numbers, labels = features.float(), torch.from_numpy(folds), one_hot(targets, classes).float()
    shares = torch.empty(len(folds), classes)
    for fold in np.unique(folds):
        apart = numbers == int(fold)
        center = vectors[~apart].mean(0)
        inside, outside = normalize(vectors[~apart] - center, dim=1), normalize(vectors[apart] - center, dim=1)
        nearest = Nearest(outside.numpy(), NEIGHBORS)
        for first in range(0, len(inside), BLOCK):
            nearest.add(inside[first : first + BLOCK].numpy())
        known = labels[~apart]
        shares[apart] = torch.stack(
            [
                torch.from_numpy(cosines / TEMPERATURE).softmax(0) @ known[torch.from_numpy(places)]
                for places, cosines in nearest.results()
            ]
        )
    return shares.double().numpy()


def _scaled(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    """Return vectors scaled by the mean and the standard deviation of the first ones."""
    mean, deviation = inside.mean(0), inside.std(0, correction=0)
    deviation = torch.where(deviation > 0, deviation, 1)
    return (inside - mean) / deviation, (outside - mean) / deviation


def _product(probabilities: np.ndarray, others: np.ndarray, power: float = 1) -> np.ndarray:
    """Return a power of the products of probabilities of the same classes, (examples, classes), normalized.

    The power 0.5 gives the geometric mean: two estimates that make the same mistakes are no surer than each alone.
    """
    products = (probabilities * (others + SMOOTHING)) ** power
    normalized: np.ndarray = products / products.sum(1, keepdims=True)
    return normalized


def _no_and_yes(probabilities: np.ndarray) -> np.ndarray:
    """Return probabilities, (examples,), as those of two classes, (examples, 2)."""
    return np.stack([1 - probabilities, probabilities], 1)


def _without(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return probabilities without those of the labels themselves."""
    others = probabilities.copy()
    others[np.arange(len(labels)), labels] = -1
    return others


def _unjudged(labels: np.ndarray) -> Verdicts:
    return Verdicts(np.full(len(labels), np.nan), labels.copy(), np.zeros(len(labels), bool), 0.0, 0.0)
