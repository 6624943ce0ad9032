"""Vectors of texts, trained on pairs: their cosine is high for texts that belong together.

Input: rows of two texts, all with a score or all without; those without may have negatives. Output: samples, the head
with its loss, predictions. The head pools the last layer, and the encoder itself is trained; dense layers over the
pooled vector, if there are any, are its only weights.

Without scores: each first text should find its own second text (tasks/pair_head.py). With scores: the squared error of
the cosine (Reimers and Gurevych 2019, section 3; `CosineSimilarityLoss` of sentence-transformers), where the scores are
scaled to the range from 0 to 1.

Either loss can be trained for several numbers of dimensions at once, the first components of a vector, so that vectors
can be cut later (Kusupati et al. 2022, Matryoshka representation learning, equation 1; `MatryoshkaLoss`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from torch import Tensor

from unmask.data.batches.batch import Batch
from unmask.data.labelled.columns import MATCHES, SIMILARITY, Fields
from unmask.data.labelled.labelled_file import Row
from unmask.families.checkpoints.sentence_modules import Pooling, supported
from unmask.metrics import regression as metrics
from unmask.metrics.intervals import Measure
from unmask.nn.encoders.encoder import Encoded, Encoder, HeadSpec
from unmask.nn.encoders.pooled import TINY, Dense, DenseLayers, pool, unit_vectors
from unmask.objectives.flops import head_flops, matrices
from unmask.objectives.objective import Part
from unmask.support.choices import PoolingKind
from unmask.support.errors import UserError
from unmask.support.messages import setting
from unmask.support.model_card import Card
from unmask.tasks.mistakes import Mistake
from unmask.tasks.pair_head import PairHead, Sides, ranking_loss
from unmask.tasks.regression import all_equal, extremes, numbers, with_numbers
from unmask.tasks.task import Columns, HeadOrigin, Notes, Paths, Reason, Vectors
from unmask.tasks.text_pairs import PairTask, Similarity, describe_mistakes

TARGET = "similarity"
"""Name of the label: the scaled score of a pair."""
TEMPERATURE = 0.05
"""What cosines are divided by; sentence-transformers multiplies them by 20."""


class Embedding(PairTask, frozen=True, kw_only=True, tag="embedding"):
    """The recipe's [task] for `kind = "embedding"`; see `Task`.

    Attributes:
        length: maximum number of tokens of a text, special tokens included; longer texts are truncated. By default that
            of the model, if it makes vectors of texts.
        pooling: see `nn.encoders.pooled.pool`; None: that of the model, otherwise the mean.
        dense: dense layers over the pooled vector; None: those of the model, if it has any.
        dimensions: number of first components that vectors are cut to; None: as the model has it, otherwise all.
        matryoshka: smaller numbers of first components that are trained, too: the loss is the sum of that of whole
            vectors and of that of each.
        matryoshka_weights: the weight of each of these in the sum; empty: all 1, as that of whole vectors.
        prompt: what every text begins with; None: the default prompt of the model, if it has one.
        query_prompt, document_prompt: what the first texts of pairs without scores begin with instead, and the second
            texts and negatives; None: as the model has it, otherwise `prompt`.
        temperature: what cosines are divided by, for pairs without scores; None: `TEMPERATURE`.
        symmetric: whether each second text should also find its first text, for pairs without scores.
        least, most: the scores that correspond to a cosine of 0 and of 1; None: the extremes of the training examples.
    """

    length: int = 256
    pooling: PoolingKind | None = None
    dense: tuple[Dense, ...] | None = None
    dimensions: int | None = None
    matryoshka: tuple[int, ...] = ()
    matryoshka_weights: tuple[float, ...] = ()
    prompt: str | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    temperature: float | None = None
    symmetric: bool = False
    least: float | None = None
    most: float | None = None

    part = "embedding"
    metric = "spearman"
    card = Card(
        title="Vectors of texts",
        pipeline="sentence-similarity",
        library="sentence-transformers",
        tags=("sentence-transformers", "feature-extraction"),
        usage={"texts": "A text.", "text_b": "Another text."},
    )
    fields = Fields(MATCHES, SIMILARITY, optional=True, negatives=True)
    head = HeadOrigin(weightless=True)
    has_scores = True
    route = Reason("its vectors are served by /embed", "ask for these")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature is not None and not 0 < self.temperature < math.inf:
            raise ValueError("temperature must be above 0")
        extremes = [value for value in (self.least, self.most) if value is not None]
        if not all(map(math.isfinite, extremes)) or (len(extremes) == 2 and extremes[0] >= extremes[1]):
            raise ValueError("least must be a number below most")
        if self.dimensions is not None and self.dimensions < 1:
            raise ValueError("dimensions must be at least 1")
        if len(set(self.matryoshka)) < len(self.matryoshka) or min(self.matryoshka, default=1) < 1:
            raise ValueError("matryoshka must be different numbers of dimensions, each at least 1")
        weights = self.matryoshka_weights
        if weights and (len(weights) != len(self.matryoshka) or not all(0 < weight < math.inf for weight in weights)):
            raise ValueError("matryoshka_weights must be above 0, one for each number of matryoshka")

    @property
    def pairs(self) -> bool:
        """See `Task`."""
        return True

    @property
    def vectors(self) -> Vectors:
        """See `Task`."""
        pooling = Pooling(
            kind=self.pooling or "mean",
            length=self.length,
            dense=self.dense or (),
            dimensions=self.dimensions,
            prompt=self.prompt or "",
            query=self.query_prompt,
            document=self.document_prompt,
        )
        return Vectors(pooling=pooling)

    def with_pooling(self, pooling: Pooling | None) -> Embedding:
        """See `Task`: what is not set is that of the model; if a pooling is, its dense layers are not used."""
        own = supported(pooling) if self.pooling is None else (pooling or Pooling()).of_kind(self.pooling)
        prompts = {"prompt": own.prompt or None, "query_prompt": own.query, "document_prompt": own.document}
        chosen: dict[str, Any] = {name: text for name, text in prompts.items() if getattr(self, name) is None}
        if not own.include_prompt and any(chosen.values()):
            raise UserError(
                "the model does not pool the tokens of its prompts (include_prompt), with which it cannot be trained",
                remedy=f"pass {', '.join(setting(f'task.{name}', '') for name in prompts)}",
            )
        dense = own.dense if self.dense is None else self.dense
        if self.dimensions is None and dense == own.dense:  # those of other dense layers are others
            chosen["dimensions"] = own.dimensions
        return msgspec.structs.replace(self, pooling=own.kind, dense=dense, **chosen)

    def cut(self, dimensions: int) -> Embedding:
        """See `Task`."""
        return msgspec.structs.replace(self, dimensions=dimensions)

    def finished(self, vectors: np.ndarray) -> np.ndarray:
        """See `PairTask`: cut and normalized again."""
        if self.dimensions is None:
            return vectors
        vectors = vectors[:, : self.dimensions]  # (texts, dimensions)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), TINY)

    def prompts(self, row: Row) -> Sequence[str]:
        """See `PairTask`."""
        prompt = self.prompt or ""
        if self.least is not None or "label" in row.values:  # scores do not depend on the order of the texts
            return prompt, prompt
        given = (self.query_prompt, self.document_prompt)
        return tuple(prompt if text is None else text for text in given)

    def read(
        self, paths: Paths, *, columns: Columns, kind: str | None = None, gold: bool = True, notes: Notes = None
    ) -> list[Row]:
        """See `Task`: scores are read if there is a column of them."""
        rows = super().read(paths, columns=columns, kind=kind, gold=gold, notes=notes)
        if gold and _are_scored(rows):
            rows = with_numbers(rows, notes)
            if rows[0].negatives:
                raise UserError(
                    "negatives have no effect: the pairs have scores",
                    file=rows[0].file,
                    line=rows[0].line,
                    remedy="rename or remove one of the two columns",
                )
        return rows

    def label_names(self, examples: Sequence[Row]) -> tuple[str, ...]:
        """See `Task`: none."""
        if _are_scored(examples) and len(set(numbers(examples))) < 2:
            raise all_equal(examples)
        return super().label_names(examples)

    def contrasts(self, examples: Sequence[Row]) -> bool:
        """See `Task`: those without scores."""
        return not _are_scored(examples)

    def settle(self, examples: Sequence[Row], labels: Sequence[str]) -> Embedding:
        """See `Task`: resolves the temperature, or the extremes of the scores."""
        if not _are_scored(examples):
            if self.least is not None or self.most is not None:
                raise UserError("task.least and task.most have no effect: the pairs have no scores")
            return msgspec.structs.replace(self, temperature=self.temperature or TEMPERATURE)
        if self.temperature is not None or self.symmetric:
            raise UserError("task.temperature and task.symmetric have no effect: the pairs have scores")
        least, most = extremes(examples, self.least, self.most)
        return msgspec.structs.replace(self, least=least, most=most)

    def build(self, spec: HeadSpec, labels: Sequence[str]) -> EmbeddingHead:
        """See `Task`."""
        width = self.dense[-1].width if self.dense else spec.width
        if (self.dimensions or 1) > width:
            raise UserError(f"task.dimensions is {self.dimensions}, but the vectors of this model have {width}")
        if (largest := max(self.matryoshka, default=0)) >= (self.dimensions or width):
            raise UserError(
                f"task.matryoshka has {largest}, but whole vectors have {self.dimensions or width} dimensions",
                remedy="name smaller numbers",
            )
        return EmbeddingHead(self, spec)

    def targets(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """See `PairTask`: the scaled scores, if there are any."""
        if self.least is None or self.most is None:
            return {}
        if rows and not _are_scored(rows):
            raise UserError("the pairs have no scores, but the training examples have", file=rows[0].file)
        return {TARGET: ((np.array(numbers(rows)) - self.least) / (self.most - self.least)).astype(np.float32)}

    def metrics_of(self, examples: Sequence[Row], labels: Sequence[str]) -> Sequence[str]:
        """See `Task`."""
        return ("pearson", "spearman") if _are_scored(examples) else super().metrics_of(examples, labels)

    def measure(self, examples: Sequence[Row], predictions: Sequence[Similarity], labels: Sequence[str]) -> Measure:
        """See `Task`: correlations of the cosines with the scores; without scores, how well second texts are found."""
        if not _are_scored(examples):
            return super().measure(examples, predictions, labels)
        scores = np.array([prediction.score for prediction in predictions])
        return metrics.measure(np.array(numbers(examples)), scores)

    def mistakes(
        self, examples: Sequence[Row], predictions: Sequence[Similarity], labels: Sequence[str]
    ) -> list[Mistake]:
        """See `Task`: pairs whose scores and cosines have different ranks; without scores, see `PairTask`."""
        if not _are_scored(examples):
            return super().mistakes(examples, predictions, labels)
        scores = np.array([prediction.score for prediction in predictions])
        wrong = np.abs(metrics.ranks(np.array(numbers(examples))) - metrics.ranks(scores))
        return describe_mistakes(examples, predictions, wrong, "difference of ranks")


class EmbeddingHead(PairHead):
    """Pooling, dense layers, if there are any, and normalization, with the loss of pairs.

    Args:
        task: the settings. Without a temperature the loss is the squared error of cosines.
        spec: the properties of the body.
    """

    def __init__(self, task: Embedding, spec: HeadSpec) -> None:
        super().__init__()
        self.task, self.pooling = task, task.pooling or "mean"
        if task.dense:
            self.dense = DenseLayers.new(task.dense, spec)

    def reads(self, encoder: Encoder, batch: Batch) -> Tensor | None:
        """See `Objective`."""
        return batch.positions["summary"] if self.pooling == "cls" else None

    def predict(self, encoder: Encoder, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the normalized vectors, (sequences, width) float32, which are not cut."""
        rows = pool(self.pooling, encoded.last, batch.tokens, batch.positions["summary"])  # (sequences, width)
        return unit_vectors(self.dense(rows.to(encoded.last.dtype)).float() if self.task.dense else rows)

    @property
    def joint(self) -> bool:
        """See `Objective`: without scores, pairs have the texts of all others as negatives."""
        return self.task.temperature is not None

    def loss(self, sides: Sides) -> Part:
        """See `PairHead`: the sum of the losses of all numbers of dimensions, with the accuracy of whole vectors."""
        task = self.task
        whole = self._loss(sides if task.dimensions is None else _cut(sides, task.dimensions))
        loss = whole.sum
        for number, weight in zip(
            task.matryoshka, task.matryoshka_weights or (1.0,) * len(task.matryoshka), strict=True
        ):
            loss = loss + weight * self._loss(_cut(sides, number)).sum
        return whole._replace(sum=loss)

    def _loss(self, sides: Sides) -> Part:
        if self.task.temperature is None:
            return Part(((sides.first * sides.second).sum(1) - sides.targets[TARGET]).square().sum(), {})
        scores, task = sides.first @ sides.documents.T, self.task
        return ranking_loss(scores, sides.texts, self.task.temperature, taught=sides.taught, symmetric=task.symmetric)


@head_flops.register
def _(head: EmbeddingHead, encoder: Encoder, batch: Batch) -> int:
    """The dense layers, if there are any; the body's pooler is not read."""
    return 2 * len(batch.positions[head.at]) * matrices(head)


def _cut(sides: Sides, dimensions: int) -> Sides:
    return sides.map(lambda vectors: unit_vectors(vectors[:, :dimensions]))


def _are_scored(rows: Sequence[Row]) -> bool:
    return bool(rows) and "label" in rows[0].values
