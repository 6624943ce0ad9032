"""Base of the tasks that compare texts by their vectors, and learn from pairs that belong together.

Input: rows of two texts, and maybe negatives: texts that do not belong to the first one. Output: samples, a head that
compares the vectors of all texts of a step, and how well second texts are found.

The loss is in pair_head.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import ClassVar

import msgspec
import numpy as np

from unmask.data.batches.batch import Sample
from unmask.data.labelled.identities import Identities
from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.negatives import COLUMN
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.metrics.intervals import Measure
from unmask.support.environment import check_memory
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.tasks.mistakes import Mistake
from unmask.tasks.pair_head import SIDE, TEACHER, TEXT
from unmask.tasks.rows import FramedRows, RowTask, are_pairs, frame_rows, passages, texts_of
from unmask.tasks.task import Columns, Framed, Notes, Paths, Reason, Refusals
from unmask.tasks.token_vectors import Compare

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
    comparable = ("accuracy", "reciprocal_rank")
    pool: ClassVar[int] = POOL
    refusals: ClassVar[Refusals] = dict.fromkeys(
        ("frozen", "downstream"),
        Reason(
            "vectors are those of the encoder itself, which is trained",
            f"omit {argument('frozen')} and {argument('downstream')}",
        ),
    )

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

    def label_names(self, examples: Sequence[Row]) -> tuple[str, ...]:
        """See `Task`: none.

        Raises:
            UserError: no text is a negative for another one.
        """
        if self.needs_others(examples):
            for name, which in (("text", "first"), ("text_b", "second")):
                if len({row.values[name] for row in examples}) < 2:
                    raise UserError(
                        f"all pairs have the same {which} text, so that none of their texts is a negative",
                        file=examples[0].file,
                        remedy=f"add pairs with other texts, or negatives ({COLUMN}); is it the right column?",
                    )
        return ()

    def contrasts(self, examples: Sequence[Row]) -> bool:
        """See `Task`."""
        return True

    def needs_others(self, examples: Sequence[Row]) -> bool:
        """See `Task`."""
        return self.contrasts(examples) and not examples[0].negatives

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
        """See `Task`: pairs that are not ranked first, by the number of texts above."""
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


def check_outputs(rows: Sequence[Row], numbers: int, what: str) -> None:
    """Check that the outputs for all texts of rows fit into memory.

    Args:
        rows: the pairs, with their negatives.
        numbers: how many numbers the outputs for a text have at most, float32.
        what: what these are.

    Raises:
        UserError: they do not fit.
    """
    texts = sum(2 + len(row.negatives) for row in rows)
    remedy = "give fewer at a time, or evaluate on a collection for search"
    check_memory(4 * texts * numbers, f"{what} of {texts:,} texts", remedy)


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
    """Return the pairs of which a measure is above 0.

    Args:
        examples: the pairs.
        predictions: their scores.
        wrong: the measure of each, (pairs,).
        measure: its description.
    """
    return [
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
