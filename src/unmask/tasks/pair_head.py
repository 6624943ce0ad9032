"""Base of the heads that compare texts by their vectors, and learn from pairs that belong together.

Input: the vectors of all texts of a step: first and second texts of pairs, and maybe negatives, which do not belong to
the first ones. Output: the loss of the pairs.

Each first text should find its own second text among those of its step (Henderson et al. 2017, section 4.4;
`MultipleNegativesRankingLoss` of sentence-transformers). The negatives are all those of the step on the same device,
also if it is split into micro-batches (`joint_gradients`; `CachedMultipleNegativesRankingLoss` there). Unlike there,
pairs that share a text with a pair are not its negatives, nor are their second texts where they are negatives of other
rows. The negatives of all other rows are those of each row too, unless they are equal to one of its own two texts; rows
may have different numbers of them.

If rows have the scores of a teacher, such as a cross-encoder, its distribution over the second text and the negatives
of a row is learned, too: KL(softmax(teacher) || softmax(student)) is added (Santhanam et al. 2022, "ColBERTv2",
section 3.2; `DistillKLDivLoss` of sentence-transformers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from unmask.data.batches.batch import GROUP, Batch, Sample
from unmask.nn.encoders.encoder import Encoded, Encoder
from unmask.nn.layers.vocabulary import count_correct
from unmask.objectives.objective import NEVER, Objective, Part, imitate_softmax

SIDE, TEXT, TEACHER = "side", "text_number", "teacher"
"""Names of labels: whether a sequence is a first (0), a second (1) or a negative text (2 and above); the number of its
text, the same for equal texts; the score that a teacher gives to it, if there is one (0 for first texts)."""


@dataclass(frozen=True)
class Taught:
    """What a teacher says of documents: the second texts of pairs, then all negatives.

    Attributes:
        pairs: the number of the pair that each belongs to, (documents,).
        scores: those that the teacher gives to them with the first text of this pair, (documents,).
    """

    pairs: Tensor
    scores: Tensor


@dataclass(frozen=True)
class Sides:
    """The vectors of the texts of a step, by what they are.

    Attributes:
        first, second: those of each pair, (pairs, width).
        negatives: all negatives, (negatives, width).
        texts: numbers of first, second and negative texts, equal for equal texts.
        targets: further labels of the first texts, by name, (pairs,) each.
        taught: what a teacher says of the second texts and the negatives; None: there is none.
    """

    first: Tensor
    second: Tensor
    negatives: Tensor
    texts: Sequence[Tensor]
    targets: Mapping[str, Tensor]
    taught: Taught | None = None

    @classmethod
    def split(cls, vectors: Tensor, batches: Sequence[Batch]) -> Sides:
        """Sort the vectors of several micro-batches.

        Args:
            vectors: of all texts, in the order of the batches, (texts, width).
            batches: the micro-batches.
        """
        sides = [[key[-1] for key in batch.keys] for batch in batches]  # known on the host
        counts = [numbers.count(0) for numbers in sides]
        pairs = sum(counts)
        labels = {name: torch.cat([batch.labels[name] for batch in batches]) for name in batches[0].labels}
        before = zip(batches, [0, *accumulate(counts)], strict=False)
        group = torch.cat([batch.labels[GROUP] + number for batch, number in before])
        order = (labels[SIDE].clamp(max=2) * pairs + group).argsort()  # first, second and negative texts, by pairs
        parts = (slice(pairs), slice(pairs, 2 * pairs), slice(2 * pairs, None))
        first, second, negatives = (vectors[order[part]] for part in parts)
        texts = [labels[TEXT][order[part]] for part in parts]
        known = (SIDE, TEXT, GROUP, TEACHER)
        targets = {name: values[order][:pairs] for name, values in labels.items() if name not in known}
        rest = order[pairs:]
        taught = Taught(group[rest], labels[TEACHER][rest]) if TEACHER in labels else None
        return cls(first, second, negatives, texts, targets, taught)

    @property
    def documents(self) -> Tensor:
        """The vectors of second and negative texts, (pairs + negatives, width)."""
        return torch.cat([self.second, self.negatives])

    def map(self, change: Callable[[Tensor], Tensor]) -> Sides:
        """Return a copy with all vectors changed."""
        return replace(self, first=change(self.first), second=change(self.second), negatives=change(self.negatives))


def ranking_loss(
    scores: Tensor,
    texts: Sequence[Tensor],
    temperature: float,
    *,
    taught: Taught | None = None,
    symmetric: bool = False,
) -> Part:
    """Return the cross-entropy of each first text finding its second one, summed over pairs; see the module.

    Args:
        scores: those of first texts with all second ones, then with all negatives, (pairs, pairs + negatives).
        texts: see `Sides`.
        temperature: what they are divided by.
        taught: what a teacher says; None: there is none.
        symmetric: whether to return the mean of both directions; negatives have no first texts to find.
    """
    own_first, own_second, negative = texts
    pairs = len(scores)
    shared = torch.zeros(pairs, pairs, dtype=torch.bool, device=scores.device)
    for one, other in product((own_first, own_second), repeat=2):  # of (a, b) and (b, c), b does not avoid itself
        shared |= one[:, None] == other[None]
    second = (own_second[:, None] == negative).float()  # (pairs, negatives)
    equal = (own_first[:, None] == negative) | (shared.float() @ second > 0)  # a pair shares its own texts, too
    shared.fill_diagonal_(False)
    ranked = (scores / temperature).masked_fill(torch.cat([shared, equal], 1), -torch.inf)
    matching = torch.arange(pairs, device=scores.device)
    loss = cross_entropy(ranked, matching, reduction="sum")
    if symmetric:
        loss = (loss + cross_entropy(ranked[:, :pairs].T, matching, reduction="sum")) / 2
    if taught is not None:
        others = taught.pairs != matching[:, None]  # (pairs, pairs + negatives)
        student = (scores / temperature).masked_fill(others, NEVER)
        teacher = taught.scores.expand_as(scores).masked_fill(others, NEVER)
        loss = loss + imitate_softmax(student, teacher, 1.0).sum
    return Part(loss, {"accuracy": count_correct(ranked.detach(), matching)})


class PairHead(Objective):
    """Base of heads whose outputs are vectors of texts, which are compared. Subclasses define `predict` and `loss`."""

    at = "summary"

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`: one loss term per pair."""
        return sample.add(counts={name: 1})

    def loss(self, sides: Sides) -> Part:
        """Return the loss of the pairs of a step, summed over pairs."""
        raise NotImplementedError

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        return self.compare(self.predict(encoder, encoded, batch), [batch])

    @property
    def joint(self) -> bool:
        """See `Objective`: pairs have the texts of all others as negatives."""
        return True

    def compare(self, outputs: Tensor, batches: Sequence[Batch]) -> Part:
        """See `Objective`."""
        return self.loss(Sides.split(outputs, batches))
