"""Conversion of tags to entities, and precision, recall and F1 of entities, times 100.

Input: one tag per word (`O`, or a prefix and a type: `B-PER`), or the entities themselves. Output: entities; metrics.

Definitions: the chunk rules of conlleval (Tjong Kim Sang and Buchholz 2000), with S as added by seqeval in its default
mode; the tests compare with it. Any sequence of tags is valid: an I- without a preceding B- starts an entity. M, W, L
and U are other names of I, S, E and S; seqeval has no rules for them. A tag without a prefix, such as a part of speech,
is an entity of one word; the accuracy of such tags is computed too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from unmask.metrics.intervals import Measure

ROLES = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "W": "S", "U": "S"}
"""Role of a word by prefix: it begins an entity (B), is inside (I), ends it (E), or is a single-word entity (S)."""


_UNNAMED = re.compile(r"LABEL_\d+")
NAMES = ("precision", "recall", "f1")
NAMES_WITH_MACRO = (*NAMES, *(f"{name}_macro" for name in NAMES))
"""Metrics of `measure` and `measure_with_macro`."""


class Chunk(NamedTuple):
    """An entity: its type, its start and its stop (exclusive)."""

    type: str
    start: int
    stop: int


@lru_cache(maxsize=1 << 16)
def split_tag(tag: str) -> tuple[str, str]:
    """Return the role that a tag denotes, one of O, B, I, E and S, and the type.

    Raises:
        ValueError: the tag is empty, a known prefix without a type, or LABEL_0, LABEL_1, …, which models without names
            of labels have.
    """
    if tag == "O":
        return "O", ""
    prefix, hyphen, kind = tag.partition("-")
    if not tag or (hyphen and prefix in ROLES and not kind) or _UNNAMED.fullmatch(tag):
        raise ValueError(f"'{tag}' is not a tag such as O, B-PER or I-PER")
    return (ROLES[prefix], kind) if hyphen and prefix in ROLES else ("S", tag)


def is_word_tag(tag: str) -> bool:
    """Return whether a tag has no prefix and is not O, such as a part of speech."""
    prefix, hyphen, _ = tag.partition("-")
    return tag != "O" and not (hyphen and prefix in ROLES)


def are_word_tags(labels: Collection[str]) -> bool:
    """Return whether each word has a tag without a prefix, as parts of speech, so that none is outside of entities."""
    return bool(labels) and all(map(is_word_tag, labels))


def chunks(tags: Sequence[str]) -> list[Chunk]:
    """Return the entities that tags of any scheme denote, in order.

    Raises:
        ValueError: a tag is invalid.
    """
    entities = []
    start, previous, previous_kind = 0, "O", ""
    for index, tag in enumerate([*tags, "O"]):
        role, kind = split_tag(tag)
        if role == "O" or role in "BS" or previous in "OES" or kind != previous_kind:
            if previous != "O":
                entities.append(Chunk(previous_kind, start, index))
            start = index
        previous, previous_kind = role, kind
    return entities


def scores(counts: np.ndarray) -> dict[str, float]:
    """Return precision, recall and F1; values that are undefined because there are no entities are 0.

    Shape:
        counts: (3,): the numbers of correct, predicted and gold entities.
    """
    correct, predicted, gold = counts.tolist()
    return {
        "precision": 100 * correct / predicted if predicted else 0.0,
        "recall": 100 * correct / gold if gold else 0.0,
        "f1": 200 * correct / (predicted + gold) if predicted + gold else 0.0,
    }


def measure(gold: Sequence[Collection[Chunk]], predicted: Sequence[Collection[Chunk]]) -> Measure:
    """Return a function from sentences to metrics, over all their entities (micro average).

    Args:
        gold, predicted: the entities of each sentence; an entity is correct if its type, start and stop are.
    """
    counts = np.array([_count(*pair) for pair in zip(gold, predicted, strict=True)])  # (sentences, 3)
    return lambda sentences: scores(counts[sentences].sum(0))


def measure_with_macro(gold: Sequence[Collection[Chunk]], predicted: Sequence[Collection[Chunk]]) -> Measure:
    """Return a function from sentences to metrics, over all their entities and as means over types (macro average).

    As in seqeval, the types are those of the gold and of the predicted entities. The arguments are those of `measure`.
    """
    kinds = sorted({chunk[0] for entities in (*gold, *predicted) for chunk in entities})
    counts = np.zeros((len(gold), len(kinds), 3), np.int64)
    for index, pair in enumerate(zip(gold, predicted, strict=True)):
        for kind in {chunk[0] for entities in pair for chunk in entities}:
            of_kind = [[chunk for chunk in entities if chunk[0] == kind] for entities in pair]
            counts[index, kinds.index(kind)] = _count(*of_kind)

    def metrics(sentences: np.ndarray) -> dict[str, float]:
        by_kind = counts[sentences].sum(0)  # (types, 3)
        each = [scores(count) for count in by_kind if count.any()]
        micro = scores(by_kind.sum(0))
        macro = {f"{name}_macro": float(np.mean([of[name] for of in each])) if each else 0.0 for name in micro}
        return {**micro, **macro}

    return metrics


def measure_accuracy(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> Measure:
    """Return a function from sentences to the share of their words whose tag is correct, times 100.

    Args:
        gold, predicted: the tags of each sentence.
    """
    counts = np.array(
        [(sum(map(str.__eq__, *pair)), len(pair[0])) for pair in zip(gold, predicted, strict=True)]
    )  # (sentences, 2)

    def accuracy(sentences: np.ndarray) -> dict[str, float]:
        correct, words = counts[sentences].sum(0).tolist()
        return {"accuracy": 100 * correct / words if words else 0.0}

    return accuracy


def by_tag(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, dict[str, float]]:
    """Return the metrics of each tag of words, its accuracy (the share of its words that got it), and its `words`."""
    counts: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(3, np.int64))
    for true, read in zip(gold, predicted, strict=True):
        for tag, other in zip(true, read, strict=True):
            counts[tag] += (tag == other, 0, 1)
            counts[other] += (0, 1, 0)
    found = {tag: (scores(count), int(count[2])) for tag, count in sorted(counts.items())}
    return {tag: {"accuracy": of["recall"], **of, "words": words} for tag, (of, words) in found.items()}


def by_type(gold: Sequence[Collection[Chunk]], predicted: Sequence[Collection[Chunk]]) -> dict[str, dict[str, float]]:
    """Return the metrics of each type, and the number of its gold `entities`."""
    counts = {chunk[0]: np.zeros(3, np.int64) for entities in (*gold, *predicted) for chunk in entities}
    for pair in zip(gold, predicted, strict=True):
        for kind in {chunk[0] for entities in pair for chunk in entities}:
            of_kind = [[chunk for chunk in entities if chunk[0] == kind] for entities in pair]
            counts[kind] += _count(*of_kind)
    return {kind: {**scores(count), "entities": int(count[2])} for kind, count in sorted(counts.items())}


def _count(gold: Collection[Chunk], predicted: Collection[Chunk]) -> list[int]:
    return [len(set(gold) & set(predicted)), len(predicted), len(gold)]
