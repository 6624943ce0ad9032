"""Vectors of texts, trained on pairs: their cosine is high for texts that belong together.

Input: rows of two texts, all with a score or all without; those without may have a third text, a hard negative.
Output: samples, the head with its loss, predictions. The head has no weights: it pools the last layer, and the encoder
itself is trained.

Without scores: each first text should find its own second text among those of its step (Henderson et al. 2017,
section 4.4; `MultipleNegativesRankingLoss` of sentence-transformers). The negatives are all those of the step on the
same device, also if it is split into micro-batches (training/joint.py; `CachedMultipleNegativesRankingLoss` there).
Unlike there, pairs that share a text with a pair are not its negatives. The third texts of all rows are negatives of
each row too, unless they are equal to one of its own two texts. With scores: the squared error of the cosine
(Reimers and Gurevych 2019, section 3; `CosineSimilarityLoss`), where the scores are scaled to the range from 0 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from unmask.data.batches.batch import GROUP, Batch, Sample
from unmask.data.labelled.columns import LABELS, NUMBERS, SIMILARITY, Fields
from unmask.data.labelled.labelled_file import NAMES, Row
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.families.checkpoints.heads import Pooling, supported
from unmask.metrics import regression as metrics
from unmask.metrics.intervals import Measure
from unmask.nn.encoders.encoder import Encoded, Encoder, HeadSpec, mean_vectors
from unmask.nn.layers.vocabulary import count_correct
from unmask.objectives.objective import Objective, Part
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.tasks.regression import all_equal, numbers
from unmask.tasks.rows import RowTask, are_pairs, frame_rows, passages
from unmask.tasks.task import Columns, Framed, Mistake, Notes, Paths, Reason, Refusals

SIDE, TEXT, TARGET = "side", "text_number", "similarity"
"""Names of labels: whether a sequence is a first (0), a second (1) or a third text (2); the number of its text, the
same for equal texts; the scaled score of its pair."""
TEMPERATURE = 0.05
"""What cosines are divided by; sentence-transformers multiplies them by 20."""
POOL = 1000
"""Maximum number of pairs, in order, among whose second texts a second text is ranked."""
TIE = 1e-6
"""Difference of cosines that rounding can explain, so that equal texts have equal ranks."""


class Similarity(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pair of texts with the cosine of their vectors.

    Attributes:
        text, text_b: the texts as given.
        score: the cosine, -1 to 1.
        rank: rank of the second text by its cosine with the first, from 1, among the second and third texts of up to
            `POOL` pairs.
        cut: whether a text was truncated because it exceeds the task's `length`.
    """

    text: str
    text_b: str
    score: float
    rank: int = 1
    cut: bool = False


class Embedding(RowTask, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="embedding"):
    """The recipe's [task] for `kind = "embedding"`; see `Task`.

    Attributes:
        length: maximum number of tokens of a text, special tokens included; longer texts are truncated.
        pooling: "mean" of all tokens, or "cls", where the model reads the vector of a text; None: that of the model,
            otherwise the mean.
        temperature: what cosines are divided by, for pairs without scores; None: `TEMPERATURE`.
        symmetric: whether each second text should also find its first text, for pairs without scores.
        least, most: the scores that correspond to a cosine of 0 and of 1; None: the extremes of the training examples.
    """

    pooling: Literal["mean", "cls"] | None = None
    temperature: float | None = None
    symmetric: bool = False
    least: float | None = None
    most: float | None = None

    part = "embedding"
    metric = "spearman"
    title = "Vectors of texts"
    pipeline = "sentence-similarity"
    fields = Fields((*NUMBERS, *LABELS), SIMILARITY, optional=True, triplets=True)
    usage = '"A text." --text-b "Another text."'
    weightless = True
    route = Reason("its vectors are served by /embed", "ask for these")
    refusals: ClassVar[Refusals] = dict.fromkeys(
        ("frozen", "downstream"),
        Reason(
            "vectors are those of the encoder itself, which is trained",
            f"omit {argument('frozen')} and {argument('downstream')}",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature is not None and not 0 < self.temperature < math.inf:
            raise ValueError("temperature must be above 0")
        extremes = [value for value in (self.least, self.most) if value is not None]
        if not all(map(math.isfinite, extremes)) or (len(extremes) == 2 and extremes[0] >= extremes[1]):
            raise ValueError("least must be a number below most")

    @property
    def grouped(self) -> str:
        """See `Task`: the texts of a pair."""
        return "texts"

    @property
    def pairs(self) -> bool:
        """See `Task`."""
        return True

    @property
    def vectors(self) -> Pooling:
        """See `Task`."""
        return Pooling(kind=self.pooling or "mean", length=self.length)

    def with_pooling(self, pooling: Pooling | None) -> Embedding:
        """See `Task`."""
        return self if self.pooling else msgspec.structs.replace(self, pooling=supported(pooling).kind)

    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[Row]:
        """See `Task`: scores are read if there is a column of them."""
        rows = super().read(paths, columns=columns, kind=kind, gold=gold, notes=notes)
        if gold and "text_b" not in rows[0].values:
            raise UserError(
                "one text, but vectors are trained and evaluated on pairs of texts",
                file=rows[0].file,
                line=rows[0].line,
                remedy=f"give the second text: a column text_b, or {argument('columns')} text_b=NAME",
            )
        if gold and _are_scored(rows):
            numbers(rows)
            if "text_c" in rows[0].values:
                raise UserError(
                    "negatives have no effect: the pairs have scores",
                    file=rows[0].file,
                    line=rows[0].line,
                    remedy="rename or remove one of the two columns",
                )
        for row in rows:
            if row.values.get("text_c") in (row.values["text"], row.values.get("text_b", "")):
                raise UserError(
                    "the negative is the first or the second text",
                    file=row.file,
                    line=row.line,
                    remedy="remove the row",
                )
        return rows

    def label_names(self, examples: Sequence[Row]) -> tuple[str, ...]:
        """See `Task`: none."""
        if _are_scored(examples) and len(set(numbers(examples))) < 2:
            raise all_equal(examples)
        return ()

    def settle(self, examples: Sequence[Row], labels: Sequence[str]) -> Embedding:
        """See `Task`: resolves the temperature, or the extremes of the scores."""
        if not _are_scored(examples):
            if self.least is not None or self.most is not None:
                raise UserError("task.least and task.most have no effect: the pairs have no scores")
            return msgspec.structs.replace(self, temperature=self.temperature or TEMPERATURE)
        if self.temperature is not None or self.symmetric:
            raise UserError("task.temperature and task.symmetric have no effect: the pairs have scores")
        values = numbers(examples)
        least = min(values) if self.least is None else self.least
        most = max(values) if self.most is None else self.most
        if least >= most:
            raise all_equal(examples)
        return msgspec.structs.replace(self, least=least, most=most)

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> EmbeddingHead:
        """See `Task`."""
        return EmbeddingHead(self.pooling or "mean", self.temperature, symmetric=self.symmetric)

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Row], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`: with `gold`, a sample per pair; otherwise, one per text."""
        are_pairs(examples, True)
        names = _texts(examples)
        rows = [Row({"text": row.values[name]}, row.file, row.line) for row in examples for name in names]
        samples, cut, notes = frame_rows(tokenizer, rows, self.length, pairs=False)

        def read(logits: Sequence[np.ndarray]) -> list[Similarity]:
            if not logits:
                return []
            vectors = np.concatenate(logits)  # (texts of all pairs, width)
            sides = (vectors[side :: len(names)] for side in range(len(names)))  # (pairs, width) each
            were_cut: list[bool] = np.any(np.reshape(cut, (len(examples), len(names))), axis=1).tolist()
            return [
                Similarity(row.values["text"], row.values["text_b"], cosine, rank, was_cut)
                for row, cosine, rank, was_cut in zip(examples, *_compare(*sides), were_cut, strict=True)
            ]

        return Framed(self._paired(samples, examples) if gold else samples, read, notes)

    def measure(self, examples: Sequence[Row], predictions: Sequence[Similarity], labels: Sequence[str]) -> Measure:
        """See `Task`: correlations of the cosines with the scores; without scores, how well second texts are found."""
        if _are_scored(examples):
            scores = np.array([prediction.score for prediction in predictions])
            return metrics.measure(np.array(numbers(examples)), scores)
        ranks = np.array([prediction.rank for prediction in predictions])
        return lambda chosen: {
            "accuracy": 100 * float((ranks[chosen] == 1).mean()),
            "reciprocal_rank": 100 * float((1 / ranks[chosen]).mean()),
        }

    def mistakes(
        self, examples: Sequence[Row], predictions: Sequence[Similarity], labels: Sequence[str]
    ) -> list[Mistake]:
        """See `Task`: the pairs that scores and cosines order most differently; without scores, the lowest ranks."""
        if scored := _are_scored(examples):
            scores = np.array([prediction.score for prediction in predictions])
            wrong = np.abs(metrics.ranks(np.array(numbers(examples))) - metrics.ranks(scores))
        else:
            wrong = np.array([prediction.rank - 1 for prediction in predictions])
        mistakes = [
            Mistake(
                passages(row),
                caption=f"{row.file}:{row.line}",
                score=float(off),
                measure="difference of ranks" if scored else "texts ranked above",
                gold=row.values.get("label", ""),
                predicted=f"{prediction.score:.3f}",
            )
            for row, prediction, off in zip(examples, predictions, wrong, strict=True)
            if off > 0
        ]
        return sorted(mistakes, key=lambda mistake: -mistake.score)

    def line(self, prediction: Similarity) -> str:
        """See `Task`."""
        return f"{prediction.score:.3f}\t{prediction.text}\t{prediction.text_b}"

    def _paired(self, samples: Sequence[Sample], rows: Sequence[Row]) -> list[Sample]:
        """Return a sample per pair, labeled for the loss."""
        known: dict[str, int] = {}
        targets = None
        if self.least is not None and self.most is not None:
            if rows and not _are_scored(rows):
                raise UserError("the pairs have no scores, but the training examples have", file=rows[0].file)
            targets = ((np.array(numbers(rows)) - self.least) / (self.most - self.least)).astype(np.float32)
        made, names = [], _texts(rows)
        for number, row in enumerate(rows):
            texts = [known.setdefault(row.values[name], len(known)) for name in names]
            labels = {SIDE: np.arange(len(names)), TEXT: np.array(texts)}
            if targets is not None:
                labels[TARGET] = targets[[number] * len(names)]
            part = slice(len(names) * number, len(names) * (number + 1))
            made.append(Sample.joined(samples[part], labels).named((0, number)))
        return made


class EmbeddingHead(Objective):
    """Pooling and normalization, with the loss of pairs; it has no weights.

    Args:
        pooling: "mean" of all tokens, or "cls", where the model reads the vector of a text.
        temperature: what cosines are divided by; None: the loss is the squared error of cosines.
        symmetric: whether the ranking loss is the mean of both directions.
    """

    at = "summary"

    def __init__(self, pooling: str, temperature: float | None = None, *, symmetric: bool = False) -> None:
        super().__init__()
        self.pooling, self.temperature, self.symmetric = pooling, temperature, symmetric

    def prepare(self, sample: Sample, name: str) -> Sample:
        """See `Objective`: one loss term per pair."""
        return sample.add(counts={name: 1})

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`."""
        return batch.positions["summary"] if self.pooling == "cls" else None

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the normalized vectors, (sequences, width) float32."""
        if self.pooling == "cls":
            rows = encoded.last.index_select(0, batch.positions["summary"]).float()
        else:
            rows = mean_vectors(encoded.last, batch.tokens)
        return normalize(rows, dim=1)

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        return self.compare(self.predict(encoder, encoded, batch), [batch])

    @property
    def joint(self) -> bool:
        """See `Objective`: without scores, pairs have the texts of all others as negatives."""
        return self.temperature is not None

    def compare(self, outputs: Tensor, batches: Sequence[Batch]) -> Part:
        """See `Objective`."""
        sides = self._sides(batches[0])
        pairs_before = np.cumsum([0, *(len(batch.keys) // sides for batch in batches)]).tolist()
        group = torch.cat([batch.labels[GROUP] + before for batch, before in zip(batches, pairs_before, strict=False)])
        labels = {
            name: torch.cat([batch.labels[name] for batch in batches])
            for name in (SIDE, TEXT, TARGET)
            if name in batches[0].labels
        }
        order = (sides * group + labels[SIDE]).argsort()  # pair by pair, first texts first
        vectors = outputs[order]  # (sequences, width)
        first, second = vectors[::sides], vectors[1::sides]  # (pairs, width) each
        if self.temperature is None:
            targets = labels[TARGET][order][::sides]  # (pairs,)
            return Part(((first * second).sum(1) - targets).square().sum(), {})
        texts = labels[TEXT][order].view(-1, sides)  # (pairs, 2 or 3)
        pairs = texts[:, :2]
        shared = (pairs[:, None] == pairs[None]).any(2).fill_diagonal_(False)  # (pairs, pairs)
        logits = (first @ second.T / self.temperature).masked_fill(shared, -torch.inf)  # (pairs, pairs)
        matching = torch.arange(len(logits), device=logits.device)
        ranked = logits
        if sides == 3:
            equal = (pairs[:, None] == texts[None, :, 2:]).any(2)  # (pairs, pairs)
            hard = (first @ vectors[2::sides].T / self.temperature).masked_fill(equal, -torch.inf)  # (pairs, pairs)
            ranked = torch.cat([logits, hard], 1)  # (pairs, 2 * pairs)
        loss = cross_entropy(ranked, matching, reduction="sum")
        if self.symmetric:  # the third texts have no first texts to find
            loss = (loss + cross_entropy(logits.T, matching, reduction="sum")) / 2
        return Part(loss, {"accuracy": count_correct(ranked.detach(), matching)})

    def _sides(self, batch: Batch) -> int:
        """Return the number of texts per pair, 2 or 3, which is known on the host."""
        return 1 + max(key[-1] for key in batch.keys)


def _are_scored(rows: Sequence[Row]) -> bool:
    return bool(rows) and "label" in rows[0].values


def _texts(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the names of the texts of a row, all of which have the same."""
    return NAMES[:3] if rows and "text_c" in rows[0].values else NAMES[:2]


def _compare(first: np.ndarray, second: np.ndarray, third: np.ndarray | None = None) -> tuple[list[float], list[int]]:
    """Return the cosine of each pair, and the rank of its second vector; see `Similarity`.

    Shape:
        first, second, third: (pairs, width), normalized.
    """
    cosines = (first * second).sum(1)  # (pairs,)
    ranks: list[int] = []
    for start in range(0, len(first), POOL):
        chosen = slice(start, start + POOL)
        others = second[chosen] if third is None else np.concatenate([second[chosen], third[chosen]])
        table = first[chosen] @ others.T  # (pairs of the pool, second and third texts of the pool)
        ranks += (1 + (table > cosines[chosen, None] + TIE).sum(1)).tolist()
    return cosines.tolist(), ranks
