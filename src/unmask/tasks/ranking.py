"""Ranking of passages for queries by a cross-encoder, which reads a query and a passage together.

Input: rows of a query, a passage and a grade, any number of rows for a query. Output: samples, the head with its loss,
the score of each pair. The head is one linear unit over the pooled [CLS] (Nogueira and Cho 2019), so that the directory
is a `ForSequenceClassification` with one label, and a `CrossEncoder` of sentence-transformers.

The losses (`Ranking.loss`):

- binary: the cross-entropy of each pair, with the grade scaled to the range from 0 to 1 as its probability.
- pairwise: RankNet (Burges et al. 2005): for two passages of a query with different grades, -log sigmoid of the
  difference of their scores.
- softmax: the cross-entropy of two distributions over the passages of a query, the shares of the passages in the sum of
  the gains (the grade minus `Ranking.least`) and the softmax of the scores (Bruch et al. 2019). With one relevant
  passage, this is the localized contrastive loss of Gao et al. 2021.
- listwise: ListNet, top one (Cao et al. 2007): likewise, but with the softmax of the grades, which is nearly uniform
  where these are 0 and 1.
- margin: margin-MSE (Hofstätter et al. 2020): for two passages of a query, the squared error of the difference of their
  scores, where the grades are the scores of a teacher.

All but the first are means over the pairs of a query, so that each query counts the same; sentence-transformers
averages over all pairs of a batch. The passages of a query are one sample (`Sample.parts`); if there are more than
`Ranking.passages`, they are dealt out to several in the order of their grades, and the best one is in each of these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, softplus

from unmask.data.batches.batch import GROUP, Batch, Sample
from unmask.data.labelled.columns import GRADES, Fields
from unmask.data.labelled.identities import Identities
from unmask.data.labelled.labelled_file import Row
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.metrics import retrieval
from unmask.metrics.intervals import Measure
from unmask.nn.encoders.encoder import Encoded, Encoder, HeadSpec
from unmask.objectives.objective import Part
from unmask.support.errors import ShareNote, UserError
from unmask.support.messages import argument, call
from unmask.support.model_card import Card
from unmask.tasks.holding_out import choose_enough_units
from unmask.tasks.mistakes import Mistake, Passage
from unmask.tasks.pooled_head import PooledHead
from unmask.tasks.regression import Score, ScoreTask, all_equal, extremes, numbers
from unmask.tasks.rows import are_pairs, with_labels
from unmask.tasks.task import Framed, HeadOrigin, Notes, Reason, Refusals, Training

Loss = Literal["binary", "softmax", "pairwise", "listwise", "margin"]
COMPARED = 0.9
"""Minimum share of examples of queries whose passages have different grades, with which the default loss is softmax."""
GRADE = "ranking"
"""Name of the label: the grade of a passage, for the binary loss scaled to the range from 0 to 1."""


class Ranking(ScoreTask, frozen=True, kw_only=True, tag="ranking"):
    """The recipe's [task] for `kind = "ranking"`; see `TextTask`.

    Attributes:
        length: maximum number of tokens of a query and a passage, special tokens included; the longer one of the two is
            truncated.
        loss: see the module; None: "softmax", or "binary" if more than a tenth of the training examples are of queries
            whose passages have equal grades, from which only the binary loss learns.
        least, most: the grades that stand for not relevant and for most relevant; None: the extremes of the training
            examples. In metrics, the gain of a passage is its grade minus `least`.
        passages: maximum number of passages of a query in a training sample, unless the loss is binary.
        activation: see `ScoreTask`; None: "sigmoid" if the loss is binary, otherwise "identity".
    """

    length: int = 512
    pairs: bool | None = True
    loss: Loss | None = None
    least: float | None = None
    most: float | None = None
    passages: int = 8

    part = "ranking"
    scoring = ("least",)
    metric = "ndcg@10"
    card = Card(
        title="A ranking of passages for queries",
        pipeline="text-ranking",
        library="sentence-transformers",
        tags=("sentence-transformers", "cross-encoder", "reranker"),
        usage={"texts": "A query.", "text_b": "A passage."},
    )
    fields = Fields(GRADES)
    training = Training(rate=2.0, tuned={"loss": "binary"})  # a student imitates the score of each pair
    head = HeadOrigin(continues=("regression",))  # which published cross-encoders are
    refusals: ClassVar[Refusals] = {
        "frozen": Reason(
            "ranking does not work with a frozen encoder, which has not compared the two texts",
            f"omit {argument('frozen')}",
        ),
        "temperature": Reason("a temperature softens no numbers", "remove it"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.passages < 2:
            raise ValueError("passages must be at least 2")
        ends = [end for end in (self.least, self.most) if end is not None]
        if not all(map(math.isfinite, ends)) or (len(ends) == 2 and ends[0] >= ends[1]):
            raise ValueError("least must be a number below most")
        if self.windows > 1 or not self.pairs:
            raise ValueError("a query and a passage are a pair of texts in one window")

    def describe_model(self, labels: Sequence[str]) -> dict[str, dict[str, Any]]:
        """See `Task`."""
        return {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}

    @property
    def grouped(self) -> str:
        """See `Task`: the passages of a query."""
        return "" if self.loss == "binary" else "passages"

    def label_names(self, examples: Sequence[Row]) -> tuple[str, ...]:
        """See `Task`: none."""
        are_pairs(examples, True)
        if len(set(numbers(examples))) < 2:
            raise all_equal(examples)
        if not _compared(examples):
            raise UserError(
                "no query has two passages with different grades, so that there is nothing to rank",
                file=examples[0].file,
                remedy=f"add passages, or use {call('finetune', 'classification')} or {call('finetune', 'regression')}",
            )
        return ()

    def settle(self, examples: Sequence[Row], labels: Sequence[str]) -> Ranking:
        """See `Task`: resolves the loss, the extremes of the grades, and the activation."""
        loss, (least, most) = self._suited_loss(examples), extremes(examples, self.least, self.most)
        activation = self.activation or ("sigmoid" if loss == "binary" else "identity")
        return msgspec.structs.replace(self, loss=loss, least=least, most=most, activation=activation)

    def check_gold(self, examples: Sequence[Row]) -> None:
        """See `Task`: the losses `binary` and `softmax` take grades from the least to the most."""
        least, most = self._extremes
        for row, grade in zip(examples, numbers(examples), strict=True):
            if self.loss in ("binary", "softmax") and not least <= grade <= most:
                raise UserError(
                    f"the grade {grade:g} is not from task.least = {least:g} to task.most = {most:g}",
                    file=row.file,
                    line=row.line,
                )

    def _suited_loss(self, examples: Sequence[Row]) -> Loss:
        """Return the loss; see `loss`."""
        if self.loss is not None:
            return self.loss
        compared = sum(map(len, _compared(examples)))
        return "softmax" if compared >= COMPARED * len(examples) else "binary"

    def examples_per_sample(self, examples: Sequence[Row]) -> float:
        """See `Task`: the passages of a query, unless the loss is binary."""
        loss = self._suited_loss(examples)
        return 1.0 if loss == "binary" else min(self.passages, fmean(map(len, _compared(examples, loss))))

    def choose_held(
        self, examples: Sequence[Row], identities: Identities, seed: int, notes: Notes = None
    ) -> np.ndarray:
        """See `Task`: a tenth of the pairs, with all others of an equal query."""
        queries = Identities.of((row.values["text"],) for row in examples)
        return choose_enough_units(examples, queries.firsts().tolist(), seed, what="query")

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> RankingHead:
        """See `Task`."""
        return RankingHead(spec, self.loss or "softmax")

    def frame(self, tokenizer: Tokenizer, examples: Sequence[Row], labels: Sequence[str], *, gold: bool) -> Framed:
        """See `Task`: with `gold`, a sample per pair, or per query; otherwise, one per pair."""
        framed = self.frame_scored(tokenizer, examples)
        if not gold:
            return framed
        samples, notes = self._graded(framed.samples, examples)
        return replace(framed, samples=samples, notes=(*framed.notes, *notes))

    def metrics_of(self, examples: Sequence[Row], labels: Sequence[str]) -> Sequence[str]:
        """See `Task`: four, if all grades are whole numbers."""
        gains = self._gains(examples)
        return ("ndcg@10", "mrr@10", "map", "recall@10") if (gains == gains.round()).all() else ("ndcg@10",)

    def measure(self, examples: Sequence[Row], predictions: Sequence[Score], labels: Sequence[str]) -> Measure:
        """See `Task`: means over the queries with a relevant passage."""
        gains, names = self._gains(examples), self.metrics_of(examples, labels)
        scores = self.rankable(predictions)
        values: dict[str, np.ndarray] = {}
        weights = np.zeros(len(examples))  # of each pair: all pairs of a query have the weight 1 together
        for rows in _by_query(examples):
            if (gains[rows] > 0).any():
                ranked = gains[rows][retrieval.in_order(scores[rows], np.arange(len(rows)))]
                of_query = retrieval.query_metrics(ranked, gains[rows])
                weights[rows] = 1 / len(rows)
                for name in names:
                    values.setdefault(name, np.zeros(len(examples)))[rows] = of_query[name]
        if not values:
            raise UserError("no query has a relevant passage", file=examples[0].file, remedy="set task.least lower")

        def measure(chosen: np.ndarray) -> dict[str, float]:
            total = weights[chosen].sum()
            return {
                name: 100 * float((column[chosen] * weights[chosen]).sum() / total) if total else 0.0
                for name, column in values.items()
            }

        return measure

    def _gains(self, examples: Sequence[Row]) -> np.ndarray:
        """Return the gain of each passage, (examples,): none for grades below the least, which others may have."""
        return np.maximum(np.array(numbers(examples)) - (self.least or 0.0), 0)

    def labelled(self, examples: Sequence[Row], predictions: Sequence[Score]) -> list[Row]:
        """See `Task`; with the binary and the softmax loss, the grades that stand for the probabilities."""
        if self.loss not in ("binary", "softmax"):
            return super().labelled(examples, predictions)
        scores = self.rankable(predictions)
        probabilities = np.exp(-np.logaddexp(0, -scores))
        if self.loss == "softmax":  # that a passage is the best one of its query
            for rows in _by_query(examples):
                probabilities[rows] = np.exp(scores[rows] - np.logaddexp.reduce(scores[rows]))
        return with_labels(examples, list(map(str, np.interp(probabilities, (0, 1), self._extremes).tolist())))

    def groups(self, examples: Sequence[Row]) -> Sequence[str]:
        """See `Task`: the query of each pair."""
        return [row.values["text"] for row in examples]

    def mistakes(self, examples: Sequence[Row], predictions: Sequence[Score], labels: Sequence[str]) -> list[Mistake]:
        """See `Task`: passages below less relevant ones of the query, by the number of these."""
        grades = np.array(numbers(examples))
        scores = np.array([prediction.score for prediction in predictions])
        mistakes = []
        for rows in _by_query(examples):
            for index in rows.tolist():
                above = (scores[rows] >= scores[index]) & (grades[rows] < grades[index])
                if count := int(above.sum()):
                    row = examples[index]
                    mistakes.append(
                        Mistake(
                            (Passage(row.values["text"], "query"), Passage(row.values["text_b"], "passage")),
                            caption=f"{row.file}:{row.line}",
                            score=float(count),
                            measure="less relevant passages above",
                            gold=row.values["label"],
                            predicted=f"{predictions[index].score:.3f}",
                        )
                    )
        return mistakes

    @property
    def _extremes(self) -> tuple[float, float]:
        """The grades that stand for the probabilities 0 and 1."""
        return self.least or 0.0, 1.0 if self.most is None else self.most

    def _graded(self, samples: Sequence[Sample], rows: Sequence[Row]) -> tuple[list[Sample], tuple[str, ...]]:
        """Return samples with grades, of a pair each or of several of a query, and notes."""
        grades = np.array(numbers(rows), np.float32)
        if self.loss == "binary":
            least, most = self._extremes
            targets = ((grades - least) / (most - least)).clip(0, 1)  # those of dev examples may be beyond the extremes
            return [
                sample.add(labels={GRADE: targets[number : number + 1]}) for number, sample in enumerate(samples)
            ], ()
        gains = grades - np.float32(self.least or 0)
        joined, queries = list[Sample](), _compared(rows, self.loss)
        if self.loss in ("softmax", None):  # of shares none is below 0, and one is above
            gains = gains.clip(0)
            queries = [members for members in queries if gains[members].any()]
        for members in queries:
            best, *others = members[np.argsort(-grades[members], kind="stable")].tolist()
            count = -(-len(others) // (self.passages - 1))
            parts = ([best, *others[number::count]] for number in range(count))
            joined += [Sample.joined([samples[index] for index in part], {GRADE: gains[part]}) for part in parts]
        what = "queries have a single passage, or passages with equal grades, and are not trained on"
        number = len(set(self.groups(rows)))
        notes = (ShareNote(number - len(queries), number, what),) if len(queries) < number else ()
        return [sample.named((0, number)) for number, sample in enumerate(joined)], notes


class RankingHead(PooledHead):
    """Head of ranking with its losses; see the module.

    Args:
        spec: the properties of the body under the head.
        loss: the loss.
    """

    def __init__(self, spec: HeadSpec, loss: Loss) -> None:
        super().__init__(spec, 1)
        self.loss = loss

    def score(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Part:
        """See `Objective`."""
        scores = self.predict(encoder, encoded, batch).squeeze(1).float()  # (sequences,)
        grades = batch.labels[GRADE]  # (sequences,)
        if self.loss == "binary":
            return Part(binary_cross_entropy_with_logits(scores, grades, reduction="sum"), {})
        return Part(ranking_loss(self.loss, scores, grades, batch.labels[GROUP]), {})

    def imitate(self, logits: Tensor, targets: Tensor, batch: Batch, temperature: float) -> Part:
        """See `Objective`: the squared error of scores; a temperature has no effect."""
        return Part((logits - targets.float()).square().sum(), {})


def ranking_loss(loss: Loss, scores: Tensor, grades: Tensor, query: Tensor) -> Tensor:
    """Return a loss of the passages of several queries, a sum over queries; see the module.

    Args:
        loss: any but "binary".
        scores: (passages,) float32.
        grades: (passages,) float32; with "softmax", 0 or above, and above 0 for one passage of each query.
        query: number of the query of each passage, (passages,).
    """
    same = query[:, None] == query[None]  # (passages, passages)
    if loss in ("softmax", "listwise"):
        logits = grades.log() if loss == "softmax" else grades
        gold, predicted = (values.expand(len(same), -1).masked_fill(~same, -torch.inf) for values in (logits, scores))
        probabilities = (logits - gold.logsumexp(1)).exp()
        return (probabilities * (predicted.logsumexp(1) - scores)).sum()
    differences, gaps = (values[:, None] - values[None] for values in (scores, grades))
    pairs = same & (gaps > 0) if loss == "pairwise" else same.fill_diagonal_(False)
    terms = softplus(-differences) if loss == "pairwise" else (differences - gaps).square()
    of_query = (query[:, None] == query[None]).float() @ pairs.sum(1).float()  # (passages,): pairs of the query
    return (terms.masked_fill(~pairs, 0).sum(1) / of_query.clamp(min=1)).sum()


def _compared(rows: Sequence[Row], loss: Loss | None = None) -> list[np.ndarray]:
    """Return the indices of the rows of each query whose passages a loss compares: with "margin", also equal grades."""
    grades = np.array(numbers(rows))
    return [
        members
        for members in _by_query(rows)
        if len(members) > 1 and (loss == "margin" or len(set(grades[members].tolist())) > 1)
    ]


def _by_query(rows: Sequence[Row]) -> list[np.ndarray]:
    """Return the indices of the rows of each query, in the order of the first ones."""
    members: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        members.setdefault(row.values["text"], []).append(index)
    return [np.array(indices) for indices in members.values()]
