"""Examples ranked by how likely their labels are wrong.

Input: examples of a task, their vectors and folds. Output: an `Audited` for each example. Equal texts with different
labels come first, as one of them is certainly wrong; then come the examples of which a label is probably wrong, then
all others, each by the smallest probability of their labels; last come those of classes that cannot be judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unmask.data.labelled.identities import Identities
from unmask.data.labelled.label_spellings import describe_alike
from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.tagged_sentence import TaggedSentence
from unmask.inference.backend import TorchBackend
from unmask.support.errors import UserError, counted
from unmask.tasks import TASKS
from unmask.tasks.holding_out import assign_folds
from unmask.tasks.task import Task
from unmask.workflows.auditing.out_of_fold import (
    Verdicts,
    judge_classes,
    judge_sets,
    out_of_fold,
    text_vectors,
    with_neighbors,
    word_vectors,
)
from unmask.workflows.finetuning.examples import contradictions, read_labels, refuse_soft

Labels = tuple[str, ...]
"""The labels of an example: its label, its several labels, or the tags of its words."""
Opinion = Callable[[Sequence[Any], Labels, np.ndarray], np.ndarray]
"""Returns the out-of-fold probabilities of examples, of these labels and in these folds; see finetuned.py."""
NAMED = 5
"""Classes that a note names."""
SEED = 0
"""Seed of the choice of the folds."""


@dataclass(frozen=True)
class Audited:
    """An example with what the audit says about its labels.

    Attributes:
        given: its labels; see `Labels`.
        suggested: the same, without those that are probably wrong.
        probability: the smallest probability of its labels; None: they are not judged.
        wrong: which of the words, or of the labels of the task, are probably wrong, by number.
        equal: an example with an equal text and other labels, by number; None: there is none.
        rank: from 1; see the module.
    """

    given: Labels
    suggested: Labels
    probability: float | None
    wrong: tuple[int, ...]
    equal: int | None
    rank: int = 0

    @property
    def is_suspect(self) -> bool:
        """Whether someone should look at it."""
        return bool(self.wrong) or self.equal is not None


@dataclass(frozen=True)
class Ranking:
    """All examples of an audit.

    Attributes:
        labels: the labels of the task.
        examples: what the audit says about each example, in the order of the examples.
        noise: the estimated share of wrong labels: of texts, of words, or of yes and no for each label of each text;
            the less the probe agrees with right labels, the larger.
        agreement: the share of labels that are the most probable ones.
        by_label: for each label `examples`, the number of texts or words that have it, and `wrong`, of how many of
            these it is probably wrong; also `instead`, what is suggested most often instead; or, if texts may have
            several labels, `missing`, of how many it is probably missing.
    """

    labels: Labels
    examples: list[Audited]
    noise: float
    agreement: float
    by_label: dict[str, dict[str, Any]]


def rank_examples(
    kind: str,
    backend: TorchBackend,
    examples: Sequence[Any],
    folds: int,
    notes: list[str],
    finetuned: Opinion | None = None,
) -> Ranking:
    """Return the audit of examples of a task.

    Args:
        kind: the task.
        backend: computes the vectors.
        examples: the examples with their labels.
        folds: number of folds.
        notes: receives what was truncated, and what cannot be judged.
        finetuned: what models that are fine-tuned on the other folds say, which counts, too; None: none are.

    Raises:
        UserError: the labels have probabilities, or there are too few of them to learn from.
    """
    task = TASKS[kind]()
    labels = read_labels(task, examples)
    refuse_soft(examples)
    notes += describe_alike(Counter(label for example in examples for label in task.labels_of(example)))
    return RANKERS[kind](task, labels, backend, examples, folds, notes, finetuned)


def _rank_classes(
    task: Task,
    labels: Labels,
    backend: TorchBackend,
    rows: Sequence[Row],
    folds: int,
    notes: list[str],
    finetuned: Opinion | None,
) -> Ranking:
    """Rank texts with one label each."""
    numbers = {label: number for number, label in enumerate(labels)}
    given = np.array([numbers[row.values["label"]] for row in rows])
    known = Identities.of(map(task.texts, rows))
    units = list(known.folded())
    vectors, parts = text_vectors(backend, rows, notes), assign_folds(units, given.tolist(), folds, SEED)
    others = finetuned(rows, labels, parts) if finetuned else None
    verdicts = judge_classes(vectors, given, parts, with_neighbors, others)
    _note_unjudged(verdicts.probability, [labels[number] for number in given], rows[0].file, notes)
    audited = [
        Audited(
            (labels[label],),
            (labels[other if wrong else label],),
            None if np.isnan(probability) else float(probability),
            (0,) if wrong else (),
            equal,
        )
        for label, other, probability, wrong, equal in zip(
            given,
            verdicts.suggested,
            verdicts.probability,
            verdicts.wrong,
            contradictions(task, rows, known),
            strict=True,
        )
    ]
    return _ranking(labels, audited, verdicts, given)


def _rank_sets(
    task: Task,
    labels: Labels,
    backend: TorchBackend,
    rows: Sequence[Row],
    folds: int,
    notes: list[str],
    finetuned: Opinion | None,
) -> Ranking:
    """Rank texts with any number of labels each."""
    targets = np.array([[label in (row.labels or ()) for label in labels] for row in rows])  # (texts, labels)
    known = Identities.of(map(task.texts, rows))
    units = list(known.folded())
    rarest = targets.sum(0).argsort(kind="stable")
    strata = [next((int(number) for number in rarest if row[number]), -1) for row in targets]
    vectors, parts = text_vectors(backend, rows, notes), assign_folds(units, strata, folds, SEED)
    every = judge_sets(vectors, targets, parts, finetuned(rows, labels, parts) if finetuned else None)
    probabilities = np.stack([verdicts.probability for verdicts in every], 1)  # (texts, labels)
    wrong = np.stack([verdicts.wrong for verdicts in every], 1)
    unjudged = np.isnan(probabilities).all(0)  # (labels,)
    _note_unjudged(np.where(unjudged, np.nan, 1), labels, rows[0].file, notes)
    least = np.where(np.isnan(probabilities), np.inf, probabilities).min(1)
    audited = [
        Audited(
            tuple(label for label, has in zip(labels, row, strict=True) if has),
            tuple(label for label, has in zip(labels, row ^ flips, strict=True) if has),
            float(probability),
            tuple(np.flatnonzero(flips).tolist()),
            equal,
        )
        for row, flips, probability, equal in zip(targets, wrong, least, contradictions(task, rows, known), strict=True)
    ]
    judged = [verdicts for verdicts, left in zip(every, unjudged, strict=True) if not left]
    noise, agreement = (
        float(np.mean(values)) for values in zip(*((each.noise, each.agreement) for each in judged), strict=True)
    )
    totals, spurious, missing = (part.sum(0).tolist() for part in (targets, wrong & targets, wrong & ~targets))
    by_label = {
        label: {"examples": totals[number], "wrong": spurious[number], "missing": missing[number]}
        for number, label in enumerate(labels)
    }
    return Ranking(labels, _ranked(audited), noise, agreement, by_label)


def _rank_words(
    task: Task,
    labels: Labels,
    backend: TorchBackend,
    sentences: Sequence[TaggedSentence],
    folds: int,
    notes: list[str],
    finetuned: Opinion | None,
) -> Ranking:
    """Rank sentences by their worst word; sentences of a document, if documents are marked, are in the same fold."""
    numbers = {label: number for number, label in enumerate(labels)}
    given = np.array([numbers[tag] for sentence in sentences for tag in sentence.tags])
    lengths = [len(sentence.tags) for sentence in sentences]
    known = Identities.of(map(task.texts, sentences))
    units = list(known.folded())
    documents = [(sentence.file, sentence.document) for sentence in sentences]
    whole = len(set(documents)) >= folds and all(document is not None for _, document in documents)
    parts = assign_folds(documents if whole else units, [0] * len(sentences), folds, SEED)
    vectors = word_vectors(backend, sentences, labels, [backend.model.encoder.num_layers])
    others = finetuned(sentences, labels, parts) if finetuned else None
    verdicts = judge_classes(vectors, given, np.repeat(parts, lengths), out_of_fold, others)
    _note_unjudged(verdicts.probability, [labels[number] for number in given], sentences[0].file, notes)
    starts = np.cumsum([0, *lengths])
    equals = contradictions(task, sentences, known)
    audited = []
    for number, (sentence, equal) in enumerate(zip(sentences, equals, strict=True)):
        words = slice(starts[number], starts[number + 1])
        wrong, probabilities = verdicts.wrong[words], verdicts.probability[words]
        tags = np.where(wrong, verdicts.suggested[words], given[words])
        least = None if np.isnan(probabilities).all() else float(np.nanmin(probabilities))
        suggested = tuple(labels[tag] for tag in tags)
        audited.append(Audited(sentence.tags, suggested, least, tuple(np.flatnonzero(wrong).tolist()), equal))
    return _ranking(labels, audited, verdicts, given)


RANKERS: dict[str, Callable[..., Ranking]] = {
    "classification": _rank_classes,
    "multi-label": _rank_sets,
    "token-classification": _rank_words,
}
"""What ranks the examples of each task that can be audited."""


def _ranking(labels: Labels, audited: Sequence[Audited], verdicts: Verdicts, given: np.ndarray) -> Ranking:
    """Return the ranking of examples whose labels are classes, with the counts of their labels."""
    wrong, suggested = verdicts.wrong, verdicts.suggested
    totals, flagged = (np.bincount(part, minlength=len(labels)) for part in (given, given[wrong]))
    by_label: dict[str, dict[str, Any]] = {
        label: {"examples": int(totals[number]), "wrong": int(flagged[number])}
        for number, label in enumerate(labels)
        if totals[number]
    }
    for (label, other), _ in Counter(zip(given[wrong].tolist(), suggested[wrong].tolist(), strict=True)).most_common():
        by_label[labels[label]].setdefault("instead", labels[other])
    return Ranking(labels, _ranked(audited), verdicts.noise, verdicts.agreement, by_label)


def _ranked(audited: Sequence[Audited]) -> list[Audited]:
    """Return examples with their ranks; see the module."""

    def key(number: int) -> tuple[bool, int, bool, float]:
        example = audited[number]
        first = len(audited)  # of the examples with an equal text
        if example.equal is not None:
            first = min(number, example.equal, audited[example.equal].equal or 0)
        return (
            example.equal is None,
            first,
            not example.wrong,
            np.inf if example.probability is None else example.probability,
        )

    ranks = {number: rank for rank, number in enumerate(sorted(range(len(audited)), key=key), start=1)}
    return [replace(example, rank=ranks[number]) for number, example in enumerate(audited)]


def _note_unjudged(probabilities: np.ndarray, labels: Sequence[str], file: str, notes: list[str]) -> None:
    """Note of which classes labels are not judged, because nothing was learned of them without these examples.

    Raises:
        UserError: none are.
    """
    unjudged = np.isnan(probabilities)
    if unjudged.all():
        raise UserError(
            "no label can be judged: fewer than two labels have two examples with different texts",
            file=file,
            remedy="label more examples",
        )
    names = list(dict.fromkeys(label for label, left in zip(labels, unjudged, strict=True) if left))
    if names:
        some = ", ".join(f"'{name}'" for name in names[:NAMED]) + (", …" if len(names) > NAMED else "")
        each = "it" if len(names) == 1 else "each"
        notes.append(
            f"{counted(len(names), 'label')} cannot be judged, as fewer than two different texts, or documents, have "
            f"or lack {each}: {some}"
        )
