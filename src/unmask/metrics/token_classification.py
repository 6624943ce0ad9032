"""Entities that tags spell, and their precision, recall and F1, times 100.

In: a tag for each word (`O`, or a prefix and a type: `B-PER`), or the entities themselves. Out: entities; scores.

Definitions: the chunk rules of conlleval (Tjong Kim Sang and Buchholz 2000), with S as seqeval adds it in its default
mode, against which the tests hold these. Any sequence of tags can be read: an I- that follows no B- opens an entity.
M, W, L and U are other names of I, S, E and S; seqeval has no rules for them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from unmask.metrics.intervals import Measure

ROLES = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "W": "S", "U": "S"}
"""Prefixes to what they say of a word: it begins an entity, is inside, ends it, or is one by itself."""


class Chunk(NamedTuple):
    """An entity: its type, and where it starts and stops (exclusive)."""

    type: str
    start: int
    stop: int


@lru_cache(maxsize=1 << 16)
def split_tag(tag: str) -> tuple[str, str]:
    """Return what a tag says of its word, one of O, B, I, E and S, and the type.

    Raises:
        ValueError: it is neither O nor a known prefix with a type.
    """
    if tag == "O":
        return "O", ""
    prefix, _, kind = tag.partition("-")
    if prefix not in ROLES or not kind:
        raise ValueError(f"'{tag}' is no tag such as O, B-PER or I-PER")
    return ROLES[prefix], kind


def chunks(tags: Sequence[str]) -> list[Chunk]:
    """Return the entities that tags of any scheme spell, in order.

    Raises:
        ValueError: what is no tag is among them.
    """
    found = []
    start, before, before_kind = 0, "O", ""
    for place, tag in enumerate([*tags, "O"]):
        role, kind = split_tag(tag)
        if role == "O" or role in "BS" or before in "OES" or kind != before_kind:
            if before != "O":
                found.append(Chunk(before_kind, start, place))
            start = place
        before, before_kind = role, kind
    return found


def scores(counts: np.ndarray) -> dict[str, float]:
    """Return precision, recall and F1; what is not defined, for want of entities, is 0.

    Shape:
        counts: (3,): entities that are right, that were predicted, that are true.
    """
    right, predicted, true = counts.tolist()
    return {
        "precision": 100 * right / predicted if predicted else 0.0,
        "recall": 100 * right / true if true else 0.0,
        "f1": 200 * right / (predicted + true) if predicted + true else 0.0,
    }


def measure(gold: Sequence[Collection[Chunk]], predicted: Sequence[Collection[Chunk]]) -> Measure:
    """Return the scores of any selection of sentences, over all their entities (micro).

    Args:
        gold, predicted: the entities of each sentence; one is right where type, start and stop are.
    """
    counts = np.array([_count(true, found) for true, found in zip(gold, predicted, strict=True)])  # (sentences, 3)
    return lambda sentences: scores(counts[sentences].sum(0))


def by_type(gold: Sequence[Collection[Chunk]], predicted: Sequence[Collection[Chunk]]) -> dict[str, dict[str, float]]:
    """Return the scores of each type, and the number of its true `entities`."""
    counts = {chunk[0]: np.zeros(3, np.int64) for one in (*gold, *predicted) for chunk in one}
    for true, found in zip(gold, predicted, strict=True):
        for kind in {chunk[0] for chunk in (*true, *found)}:
            of_kind = [[chunk for chunk in one if chunk[0] == kind] for one in (true, found)]
            counts[kind] += _count(*of_kind)
    return {kind: {**scores(count), "entities": int(count[2])} for kind, count in sorted(counts.items())}


def _count(true: Collection[Chunk], found: Collection[Chunk]) -> list[int]:
    return [len(set(true) & set(found)), len(found), len(true)]
