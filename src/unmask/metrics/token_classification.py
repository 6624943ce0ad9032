"""Conversion of tags to entities, and precision, recall and F1 of entities, times 100.

Input: one tag per word (`O`, or a prefix and a type: `B-PER`), or the entities themselves. Output: entities; metrics.

Definitions: the chunk rules of conlleval (Tjong Kim Sang and Buchholz 2000), with S as added by seqeval in its default
mode; the tests compare with it. Any sequence of tags is valid: an I- without a preceding B- starts an entity. M, W, L
and U are other names of I, S, E and S; seqeval has no rules for them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from unmask.metrics.intervals import Measure

ROLES = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "W": "S", "U": "S"}
"""Role of a word by prefix: it begins an entity (B), is inside (I), ends it (E), or is a single-word entity (S)."""


class Chunk(NamedTuple):
    """An entity: its type, its start and its stop (exclusive)."""

    type: str
    start: int
    stop: int


@lru_cache(maxsize=1 << 16)
def split_tag(tag: str) -> tuple[str, str]:
    """Return the role that a tag denotes, one of O, B, I, E and S, and the type.

    Raises:
        ValueError: the tag is neither O nor a known prefix with a type.
    """
    if tag == "O":
        return "O", ""
    prefix, _, kind = tag.partition("-")
    if prefix not in ROLES or not kind:
        raise ValueError(f"'{tag}' is not a tag such as O, B-PER or I-PER")
    return ROLES[prefix], kind


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
