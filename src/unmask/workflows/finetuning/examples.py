"""Training and evaluation examples of a fine-tuning run, read from labeled files and converted to samples."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, compress, islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from unmask.data.batches.rng import derive_rng
from unmask.data.labelled.columns import without_weights
from unmask.data.labelled.duplicates import MOST_SEARCHED, overlap
from unmask.data.labelled.folding import fold
from unmask.data.labelled.identities import Identities
from unmask.data.labelled.label_spellings import (
    describe_alike,
    describe_joined,
    describe_missing,
    describe_missing_texts,
    shown,
)
from unmask.data.labelled.labelled_file import Row
from unmask.data.labelled.records import describe_numbers
from unmask.data.labelled.table import check_once
from unmask.data.labelled.tagged_sentence import TaggedSentence
from unmask.model.model import Model
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument, setting
from unmask.support.settings import Overrides
from unmask.tasks.gold_labels import unweighted
from unmask.tasks.holding_out import describe_contradictions, describe_overlap, parted
from unmask.tasks.task import Framed, Notes, Task
from unmask.tasks.unlabelled import describe_damaged
from unmask.workflows.finetuning.job import LabelledFiles

HOLD_OUT_SEED = 0
"""Seed of the choice of the tenth that is held out; the same for every run, so that runs are comparable."""
MAX_LABELS = 10_000
"""Maximum number of labels: each prediction has a score for each of them."""
MAX_NAMED = 5
"""Maximum number of labels that a note names."""


@dataclass(frozen=True)
class Examples:
    """Examples to train on and to evaluate on (`held`), the labels, if any, and notes about what was left out.

    `warnings` are about what makes scores wrong.

    `in_memory` describes those that were not read from files; empty if all were. `origins` are the indices of the
    examples that others are variants of, which are the last ones to train on.
    """

    train: list[Any]
    held: list[Any]
    labels: tuple[str, ...]
    notes: list[str]
    in_memory: str = ""
    origins: Sequence[int] = ()
    warnings: Sequence[str] = ()

    def inner(self, task: Task) -> Examples:
        """Split off a tenth of the training examples as `held`, for choices that must not use the dev examples.

        Variants of these are left out: who has learned one knows the example.
        """
        count, origins = len(self.train) - len(self.origins), np.array(self.origins, np.int64)
        more = f", or set what they tune, such as {setting('task.threshold', 0)}" if task.tunes else ""
        identities = task.identities(self.train[:count])
        is_held = choose_tenth(task, self.train[:count], identities, f"add training examples{more}")
        train, held = parted(self.train[:count], is_held)
        variants, _ = parted(self.train[count:], is_held[origins])
        moved = np.cumsum(~is_held) - 1  # the indices of those that are left
        return replace(
            self, train=train + variants, held=unweighted(held), origins=moved[origins[~is_held[origins]]].tolist()
        )

    def fingerprints(self) -> dict[str, str]:
        """Return a hash of the examples of each part, wherever their files are.

        `memory` describes those that were in memory, if any.
        """
        digests = {"train": _digest(self.train), "dev": _digest(self.held)}
        return digests | ({"memory": self.in_memory} if self.in_memory else {})


def read_examples(task: Task, files: LabelledFiles, base: Model, *, hold_out: bool = True) -> Examples:
    """Read the files; if the labels equal those of the model, use its order.

    Without dev files a tenth of the examples is held out, if wanted.

    Raises:
        UserError: a file cannot be read, or is not suitable for the task.
    """
    notes: list[str] = []
    parts = read_parts(task, files, hold_out=hold_out, notes=notes)
    labels = base.labels if set(parts.labels) == set(base.labels) else parts.labels
    counts = Counter(label for example in (*parts.train, *parts.held) for label in task.labels_of(example))
    several = any(isinstance(example, Row) and example.labels is not None for example in parts.train[:1])
    notes += describe_alike(counts) + describe_missing(counts, several=several) + describe_joined(counts)
    notes += describe_missing_texts(text for example in (*parts.train, *parts.held) for text in task.texts(example))
    notes += describe_numbers(files.train, labels) + describe_disjoint(task, parts.train)
    known = ((parts.train, parts.identities), (parts.held, parts.held_identities))
    others = (compress(examples, (~identities.is_ascii).tolist()) for examples, identities in known)
    notes += describe_damaged(chain.from_iterable(others), task.texts)  # ASCII is not damaged
    if labels:
        notes += describe_contradictions(contradictions(task, parts.train, parts.identities), parts.train)
    kind = files.role if files.dev else "held-out"
    common = overlap(parts.identities, parts.held_identities, MOST_SEARCHED)
    told = describe_overlap(common, parts.train, parts.held, kind)
    warnings = told if common.equal or common.near else []
    notes += [] if warnings else told
    return Examples(parts.train, parts.held, labels, notes, files.in_memory, warnings=warnings)


class Parts(NamedTuple):
    """Examples to train on and those that results are reported on, with what their texts are, and the labels."""

    train: list[Any]
    held: list[Any]
    labels: tuple[str, ...]
    identities: Identities
    held_identities: Identities


def read_parts(task: Task, files: LabelledFiles, *, hold_out: bool = True, notes: Notes = None) -> Parts:
    """Read the files; without dev files a tenth of the examples is held out, if wanted.

    Weights of examples are those of the training alone: others count once each.

    Raises:
        UserError: a file cannot be read, or is given twice, or there are too few examples to hold a tenth out.
    """
    check_once(files.train)
    examples = task.read(files.train, columns=files.columns, kind=files.kind, notes=notes)
    labels, identities = read_labels(task, examples), task.identities(examples)
    is_held = np.zeros(len(examples), bool)
    if hold_out and not files.dev:
        is_held = choose_tenth(task, examples, identities, f"pass {argument(files.role, 'FILE')}", notes)
    train, held = parted(examples, is_held)
    if files.dev:
        check_once(files.dev)
        held = task.read(files.dev, columns=without_weights(files.columns), kind=files.kind, notes=notes)
        return Parts(train, held, labels, identities, task.identities(held))
    return Parts(train, unweighted(held), labels, identities.select(~is_held), identities.select(is_held))


def choose_tenth(
    task: Task, examples: Sequence[Any], identities: Identities, remedy: str, notes: Notes = None
) -> np.ndarray:
    """Return which examples are held out, (examples,) bool, the same for every run; see `Task.choose_held`.

    Args:
        task: the task.
        examples: the examples.
        identities: what those with equal texts have in common.
        remedy: what to do if there are too few.
        notes: receives what was held out instead of the usual.

    Raises:
        UserError: there are too few.
    """
    try:
        return task.choose_held(examples, identities, HOLD_OUT_SEED, notes)
    except UserError as error:
        raise UserError(error.message, remedy=remedy) from error


def contradictions(task: Task, examples: Sequence[Any], known: Identities) -> list[int | None]:
    """Return, for each example, another one with an equal text and other labels; None: there is none.

    Pairs are equal only in the same order: a text may entail another one that does not entail it. What has no hard
    labels, or labels for some words alone, such as relations, contradicts nothing.

    Args:
        task: the task.
        examples: the examples.
        known: what those with equal texts have in common.
    """
    equals: list[int | None] = [None] * len(examples)
    firsts = known.firsts()
    groups: dict[tuple[int, tuple[bytes, ...]], list[int]] = {}
    for number in np.flatnonzero(np.bincount(firsts, minlength=len(firsts))[firsts] > 1).tolist():
        example = examples[number]
        if not _is_soft(example) and not getattr(example, "relations", ()):
            texts = task.texts(example)
            order = tuple(map(fold, texts)) if len(texts) > 1 else ()
            groups.setdefault((int(firsts[number]), order), []).append(number)
    for group in groups.values():
        labels = [_comparable(task, examples[number]) for number in group]
        other = next((number for number, label in zip(group, labels, strict=True) if label != labels[0]), None)
        for number, label in zip(group, labels, strict=True):
            equals[number] = other if label == labels[0] else group[0]
    return equals


def _comparable(task: Task, example: Any) -> list[Any]:
    """Return the labels of an example so that equal texts can be compared: words may be divided differently."""
    if not isinstance(example, TaggedSentence):
        return sorted(task.labels_of(example))
    return [(kind, fold(example.text[start:stop])) for kind, start, stop in example.entities]


def drawn(examples: list[Any], number: int | None, settings: Overrides) -> list[Any]:
    """Return a number of examples, drawn at random, in their order; more of them include fewer of the same seed.

    Args:
        examples: the examples.
        number: how many; None: all.
        settings: those of the run, among them its seed.

    Raises:
        UserError: there are fewer.
    """
    if number is None:
        return examples
    if number > len(examples):
        raise UserError(
            f"{counted(len(examples), 'training example')}, fewer than {argument('examples', number)}",
            file=examples[0].file,
            remedy=f"name at most {len(examples):,}",
        )
    chosen = derive_rng(settings.get("seed", 0), "number of examples").permutation(len(examples))[:number]
    return [examples[index] for index in sorted(chosen.tolist())]


def describe_absent(task: Task, examples: Sequence[Any], chosen: Sequence[Any]) -> list[str]:
    """Return a note about the labels of examples that none of the chosen ones has."""
    known = {label for example in chosen for label in task.labels_of(example)}
    absent = dict.fromkeys(label for example in examples for label in task.labels_of(example) if label not in known)
    if not absent:
        return []
    some = ", ".join(shown(label) for label in islice(absent, MAX_NAMED)) + (", …" if len(absent) > MAX_NAMED else "")
    return [f"labels of which no example was drawn, so that they are not learned: {some}"]


def describe_disjoint(task: Task, examples: Sequence[Any]) -> list[str]:
    """Return a note about files without a label in common, which may name the same ones differently, such as 1 and pos.

    Files with a single label are not compared: there may be one for each.
    """
    labels: dict[str, set[str]] = {}
    for example in examples:
        labels.setdefault(example.file, set()).update(task.labels_of(example))
    several = [(file, known) for file, known in labels.items() if len(known) > 1]
    for (file, known), (other, others) in combinations(several, 2):
        if known.isdisjoint(others):
            listed = "; ".join(", ".join(map(shown, islice(sorted(names), MAX_NAMED))) for names in (known, others))
            return [f"{file} and {other} have no label in common ({listed}): write those that mean the same alike"]
    return []


def read_labels(task: Task, examples: Sequence[Any]) -> tuple[str, ...]:
    """Return the labels of examples, in order.

    Raises:
        UserError: nothing can be learned from the examples, or there are too many labels.
    """
    labels = task.label_names(examples)
    if len(labels) > MAX_LABELS:
        raise UserError(
            f"{len(labels):,} different labels, more than {MAX_LABELS:,}",
            file=examples[0].file,
            remedy="is it the right column?",
        )
    return labels


def _is_soft(example: object) -> bool:
    return isinstance(example, Row) and example.probabilities is not None


def refuse_soft(examples: Sequence[Any]) -> None:
    """Raise an error if a label has probabilities or votes, for uses that need one answer."""
    if soft := next(filter(_is_soft, examples), None):
        raise UserError(
            "the label has probabilities, or votes, which say themselves how certain it is",
            file=soft.file,
            line=soft.line,
            remedy=f"pass {argument('columns', {'label': 'NAME'})}: a column of labels",
        )


def frame_examples(task: Task, base: Model, examples: Sequence[Any], labels: Sequence[str], purpose: str) -> Framed:
    """Convert examples to samples.

    Raises:
        UserError: no samples remain of the examples; the message states the purpose.
    """
    framed = task.frame(base.tokenizer, examples, labels, gold=True)
    if examples and not framed.samples:
        raise UserError(f"no example can be used for {purpose}", remedy="; ".join(framed.notes))
    return framed


def _digest(examples: Sequence[Any]) -> str:
    """Return the sha256 of examples, wherever their files are."""
    content = msgspec.json.encode(examples)
    for name in {example.file for example in examples}:
        content = content.replace(b'"file":' + msgspec.json.encode(name), b'"file":""')
    return hashlib.sha256(content).hexdigest()
