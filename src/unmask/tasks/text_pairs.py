"""Base of the tasks that compare texts by their vectors, and learn from pairs that belong together.

Input: rows of two texts, and maybe negatives: texts that do not belong to the first one. Output: samples, a head that
compares the vectors of all texts of a step, and how well second texts are found.

Each first text should find its own second text among those of its step (Henderson et al. 2017, section 4.4;
`MultipleNegativesRankingLoss` of sentence-transformers). The negatives are all those of the step on the same device,
also if it is split into micro-batches (training/joint.py; `CachedMultipleNegativesRankingLoss` there). Unlike there,
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
from itertools import accumulate, pairwise, product
from typing import ClassVar

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from unmask.data.batches.batch import GROUP, Batch, Sample
from unmask.data.labelled.identities import Identities
from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.negatives import COLUMN
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.metrics.intervals import Measure
from unmask.nn.encoders.encoder import Encoded, Encoder
from unmask.nn.layers.vocabulary import count_correct
from unmask.objectives.objective import NEVER, Objective, Part, imitate_softmax
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.tasks.mistakes import Mistake
from unmask.tasks.rows import FramedRows, RowTask, are_pairs, frame_rows, passages, texts_of
from unmask.tasks.task import Columns, Framed, Notes, Paths
from unmask.tasks.token_vectors import Compare

SIDE, TEXT, TEACHER = "side", "text_number", "teacher"
"""Names of labels: whether a sequence is a first (0), a second (1) or a negative text (2 and above); the number of its
text, the same for equal texts; the score that a teacher gives to it, if there is one (0 for first texts)."""
POOL = 1000
"""Maximum number of pairs, in order, among whose second texts a second text is ranked."""
TIE = 1e-6
"""Difference of scores that rounding can explain, relative to scores above 1: equal texts have equal ranks."""


class Similarity(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pair of texts with the product of their vectors.

    Attributes:
        text, text_b: the texts as given.
        score: the product; of normalized vectors it is the cosine, -1 to 1.
        rank: rank of the second text by its score with the first, from 1, among the second and negative texts of up to
            `POOL` pairs, but for other second texts of the same first one, which belong to it, too.
        cut: whether a text was truncated because it exceeds the task's `length`.
    """

    text: str
    text_b: str
    score: float
    rank: int = 1
    cut: bool = False


class PairTask(RowTask, frozen=True, kw_only=True):
    """Base class of the tasks; see the module and `Task`.

    Attributes:
        has_scores: whether pairs may have scores; otherwise all belong together.
    """

    has_scores: ClassVar[bool] = False
    pool: ClassVar[int] = POOL

    @property
    def grouped(self) -> str:
        """See `Task`: the texts of a pair."""
        return "texts"

    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[Row]:
        """See `Task`."""
        rows = super().read(paths, columns=columns, kind=kind, gold=gold, notes=notes)
        if gold and "text_b" not in rows[0].values:
            raise UserError(
                "one text, but vectors are trained and evaluated on pairs of texts",
                file=rows[0].file,
                line=rows[0].line,
                remedy=f"give the second text: a column text_b, or {argument('columns')} text_b=NAME",
            )
        for row in rows:
            if not row.negatives:
                break
            if {row.values["text"], row.values["text_b"]} & set(row.negatives):
                raise UserError(
                    "the negative is the first or the second text",
                    file=row.file,
                    line=row.line,
                    remedy="remove the row" if len(row.negatives) == 1 else f"remove it from {COLUMN}",
                )
        return rows if self.has_scores else without_labels(rows)

    def contrasts(self, examples: Sequence[Row]) -> bool:
        """See `Task`."""
        return True

    def identities(self, examples: Sequence[Row]) -> Identities:
        """See `Task`: of the pairs, which several rows have with different negatives."""
        pairs = Identities.of(texts_of(row)[:2] for row in examples)
        are_ascii = np.array([all(map(str.isascii, row.negatives)) for row in examples], bool)  # the negatives
        return replace(pairs, is_ascii=pairs.is_ascii & are_ascii)

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Row], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`: with `gold`, a sample per pair; otherwise, one per text."""
        are_pairs(examples, True)
        sizes = [len(texts_of(row)) for row in examples]
        samples, cut, notes = self.frame_sides(tokenizer, examples)

        def read(logits: Sequence[np.ndarray]) -> list[Similarity]:
            if not logits:
                return []
            scores, ranks = rank_pairs(self.comparison(logits), list(map(texts_of, examples)))
            starts = [0, *accumulate(sizes)][:-1]
            were_cut: list[bool] = np.logical_or.reduceat(cut, starts).tolist()
            return [
                Similarity(row.values["text"], row.values["text_b"], score, rank, was_cut)
                for row, score, rank, was_cut in zip(examples, scores, ranks, were_cut, strict=True)
            ]

        return Framed(self._joined(samples, examples, sizes) if gold else samples, read, notes)

    def frame_sides(self, tokenizer: Tokenizer, rows: Sequence[Row]) -> FramedRows:
        """Return all texts of all rows, in order, as samples."""
        texts = [Row({"text": text}, row.file, row.line) for row in rows for text in self._prompted(row)]
        return frame_rows(tokenizer, texts, self.length, pairs=False)

    def comparison(self, outputs: Sequence[np.ndarray]) -> Compare:
        """Return the function that compares texts, given what the head predicts for each, (1, width)."""
        vectors = self.finished(np.concatenate(outputs))  # (texts, width)
        return lambda firsts, others: vectors[firsts] @ vectors[others].T

    def prompts(self, row: Row) -> Sequence[str]:
        """Return what the first text of a row begins with, and what the others do."""
        return "", ""

    def finished(self, vectors: np.ndarray) -> np.ndarray:
        """Return vectors as they are compared, given those that the head predicts, (texts, width) each."""
        return vectors

    def targets(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """Return further labels of rows, by name, (rows,) each.

        Raises:
            UserError: the rows are not of the kind that the model was trained on.
        """
        return {}

    def metrics_of(self, examples: Sequence[Row], labels: Sequence[str]) -> Sequence[str]:
        """See `Task`."""
        return ("accuracy", "reciprocal_rank")

    def measure(self, examples: Sequence[Row], predictions: Sequence[Similarity], labels: Sequence[str]) -> Measure:
        """See `Task`: how well second texts are found."""
        ranks = np.array([prediction.rank for prediction in predictions])
        return lambda chosen: {
            "accuracy": 100 * float((ranks[chosen] == 1).mean()),
            "reciprocal_rank": 100 * float((1 / ranks[chosen]).mean()),
        }

    def mistakes(
        self, examples: Sequence[Row], predictions: Sequence[Similarity], labels: Sequence[str]
    ) -> list[Mistake]:
        """See `Task`: the lowest ranks."""
        wrong = np.array([prediction.rank - 1 for prediction in predictions])
        return describe_mistakes(examples, predictions, wrong, "texts ranked above")

    def line(self, prediction: Similarity) -> str:
        """See `Task`."""
        return f"{prediction.score:.3f}\t{prediction.text}\t{prediction.text_b}"

    def _prompted(self, row: Row) -> list[str]:
        query, document = self.prompts(row)
        first, *others = texts_of(row)
        return [query + first, *(document + text for text in others)]

    def _joined(self, samples: Sequence[Sample], rows: Sequence[Row], sizes: Sequence[int]) -> list[Sample]:
        """Return a sample per row, labeled for the loss; `sizes` are the numbers of texts of the rows."""
        known: dict[str, int] = {}
        targets = self.targets(rows)
        made = []
        for number, (row, (start, end)) in enumerate(zip(rows, pairwise([0, *accumulate(sizes)]), strict=True)):
            texts = [known.setdefault(text, len(known)) for text in texts_of(row)]
            labels = {SIDE: np.arange(end - start), TEXT: np.array(texts)}
            labels |= {name: values[[number] * (end - start)] for name, values in targets.items()}
            if row.scores:
                labels[TEACHER] = np.array([0, *row.scores], np.float32)
            made.append(Sample.joined(samples[start:end], labels).named((0, number)))
        return made


def without_labels(rows: Sequence[Row]) -> list[Row]:
    """Return pairs that belong together without their labels, if they have any.

    Raises:
        UserError: the labels differ, as those of pairs do of which some do not belong together.
    """
    for row in rows:
        label, first = row.values.get("label"), rows[0].values.get("label")
        if label != first:
            raise UserError(
                f"the pairs have different labels ('{first}' and '{label}'), but all are taken to belong together",
                file=row.file or None,
                line=row.line or None,
                remedy="keep the rows that belong together, and remove or rename the column of the labels",
            )
    return [
        msgspec.structs.replace(row, values={name: text for name, text in row.values.items() if name != "label"})
        for row in rows
    ]


def describe_mistakes(
    examples: Sequence[Row], predictions: Sequence[Similarity], wrong: np.ndarray, measure: str
) -> list[Mistake]:
    """Return the pairs of which a measure is above 0, the largest first.

    Args:
        examples: the pairs.
        predictions: their scores.
        wrong: the measure of each, (pairs,).
        measure: its description.
    """
    mistakes = [
        Mistake(
            passages(row),
            caption=f"{row.file}:{row.line}",
            score=float(off),
            measure=measure,
            gold=row.values.get("label", ""),
            predicted=f"{prediction.score:.3f}",
        )
        for row, prediction, off in zip(examples, predictions, wrong, strict=True)
        if off > 0
    ]
    return sorted(mistakes, key=lambda mistake: -mistake.score)


def rank_pairs(compare: Compare, rows: Sequence[Sequence[str]]) -> tuple[list[float], list[int]]:
    """Return the score of each pair, and the rank of its second text; see `Similarity`.

    Args:
        compare: returns the scores of texts with others, given their numbers among all texts of all rows, in order.
        rows: the texts of each row.
    """
    starts = np.cumsum([0, *map(len, rows)])
    numbers: dict[str, int] = {}
    same = np.array([numbers.setdefault(row[0], len(numbers)) for row in rows])  # the number of each first text
    scores, ranks = list[float](), list[int]()
    for start in range(0, len(rows), POOL):
        pool = slice(start, start + POOL)
        firsts = starts[:-1][pool]
        inside = np.arange(starts[start], starts[min(start + POOL, len(rows))])
        others = np.setdiff1d(inside, firsts, assume_unique=True)  # all but the first texts
        seconds = np.searchsorted(others, firsts + 1)
        table = compare(firsts, others)  # (pairs of the pool, second and negative texts of the pool)
        own = table[np.arange(len(firsts)), seconds]  # (pairs of the pool,)
        scores += own.tolist()
        equal = own + TIE * np.maximum(1, np.abs(own))  # the largest score of a text that may be equal
        above = table > equal[:, None]
        above[:, seconds] &= same[pool, None] != same[pool]
        ranks += (1 + above.sum(1)).tolist()
    return scores, ranks


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
