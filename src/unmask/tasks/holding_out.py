"""Splits of examples into those to train on and a tenth to evaluate on, without equal texts on both sides.

What is split are units: examples with equal texts (see `unmask.data.labelled.duplicates`), the questions about a
passage, or the sentences of a document. Units differ in size, so a tenth of the *examples* is held out.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from unmask.data.batches.rng import derive_rng
from unmask.data.labelled.duplicates import Overlap, identities
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument

DEV_SHARE = 0.1
"""Share of the training examples that is held out if no dev data is given."""
MOST_NAMED = 3
"""Equal examples that a note names."""
Example = TypeVar("Example")


def hold_out(
    examples: Sequence[Example], texts: Sequence[tuple[str, ...]], strata: Sequence[Hashable], seed: int
) -> tuple[list[Example], list[Example]]:
    """Split off a random tenth of the examples, stratified; examples with equal texts stay together.

    Only if no text is rare enough to be held out with all its copies, equal texts are on both sides.

    Args:
        examples: the examples to split, each with a `file`.
        texts: the texts of each example.
        strata: the stratum of each example, for example its label; equal texts are in that of the first one.
        seed: seed of the random choice.

    Returns:
        The examples to train on and the examples to evaluate on.

    Raises:
        UserError: there are too few examples.
    """
    chosen = _stratified(_group(identities(texts)), strata, seed)
    if not chosen:  # a few texts, each many times: equal ones are then on both sides, which `describe_overlap` says
        chosen = _stratified([[index] for index in range(len(examples))], strata, seed)
    if not chosen:
        message = f"{len(examples)} examples are too few to hold out a tenth"
        if len(set(strata)) == len(examples) > 1 / DEV_SHARE:
            message = f"each of the {len(examples)} examples has a different label"
        raise UserError(
            message,
            file=examples[0].file,  # type: ignore[attr-defined]
            remedy=f"pass {argument('dev', 'FILE')} (for labels that are numbers, use: finetune regression)",
        )
    return _parted(examples, chosen)


def _stratified(units: Sequence[Sequence[int]], strata: Sequence[Hashable], seed: int) -> set[int]:
    """Return the examples of random units that are held out; may be empty."""
    by_stratum: dict[Hashable, list[Sequence[int]]] = {}
    for unit in units:
        by_stratum.setdefault(strata[unit[0]], []).append(unit)
    chosen: set[int] = set()
    seen = 0
    for number, members in enumerate(by_stratum.values()):
        size = sum(map(len, members))
        seen += size
        wanted = round(DEV_SHARE * seen) - len(chosen)  # some small strata give one example, others none
        # no stratum makes up for rare ones by giving more than its own tenth
        room = min(wanted, math.ceil(DEV_SHARE * size), size - 1)
        for rank in derive_rng(seed, "dev", number).permutation(len(members)):
            if len(members[rank]) <= room:
                chosen.update(members[rank])
                room -= len(members[rank])
    return chosen


def hold_out_units(
    examples: Sequence[Example], units: Sequence[Hashable], seed: int, *path: int, what: str, more: str = ""
) -> tuple[list[Example], list[Example]]:
    """Split off whole units whose examples are about a tenth of all.

    Args:
        examples: the examples to split, each with a `file`.
        units: the unit of each example.
        seed: seed of the random choice.
        path: further numbers that the choice depends on.
        what: what a unit is called.
        more: what the remedy suggests too if there are too few.

    Raises:
        UserError: there are too few units, or they are too large.
    """
    parts = split_units(examples, units, seed, *path)
    if parts is None:
        raise UserError(
            f"{counted(len(set(units)), what)} {'is' if len(set(units)) == 1 else 'are'} too few to hold out a tenth",
            file=examples[0].file,  # type: ignore[attr-defined]
            remedy=f"pass {argument('dev', 'FILE')}{more}",
        )
    return parts


def split_units(
    examples: Sequence[Example], units: Sequence[Hashable], seed: int, *path: int
) -> tuple[list[Example], list[Example]] | None:
    """Return what `hold_out_units` does; None if no units can be held out."""
    chosen = choose_units(_group(units), seed, *path)
    return _parted(examples, chosen) if chosen else None


def choose_units(units: Sequence[Sequence[int]], seed: int, *path: int) -> set[int]:
    """Return the examples of random units, so many that they are as near as possible to a tenth; may be empty.

    Args:
        units: the indices of each unit's examples.
        seed: seed of the random choice.
        path: further numbers that the choice depends on.
    """
    wanted, chosen = DEV_SHARE * sum(map(len, units)), set[int]()
    for rank in derive_rng(seed, "dev", *path).permutation(len(units)):
        if abs(len(chosen) + len(units[rank]) - wanted) < abs(len(chosen) - wanted):
            chosen.update(units[rank])
    return chosen


def _group(keys: Sequence[Hashable]) -> list[list[int]]:
    """Return the indices of equal keys, in order of their first one."""
    firsts: dict[Hashable, int] = {}
    more: dict[int, list[int]] = {}
    for index, key in enumerate(keys):
        first = firsts.setdefault(key, index)
        if first != index:
            more.setdefault(first, [first]).append(index)
    return [more.get(first, [first]) for first in firsts.values()]


def _parted(examples: Sequence[Example], chosen: set[int]) -> tuple[list[Example], list[Example]]:
    train = [example for index, example in enumerate(examples) if index not in chosen]
    return train, [example for index, example in enumerate(examples) if index in chosen]


def describe_overlap(overlap: Overlap, train: Sequence[Any], held: Sequence[Any], kind: str) -> list[str]:
    """Return notes about the held-out examples that are training examples.

    Args:
        overlap: see `unmask.data.labelled.duplicates.overlap`.
        train, held: the examples.
        kind: what the held-out ones are called, such as "dev".
    """
    notes = []
    everything = f"{len(held):,} {kind} examples", len(held)
    compared = everything
    if overlap.compared + len(overlap.equal) < len(held):
        compared = f"{overlap.compared:,} {kind} examples that were compared", overlap.compared
    for pairs, (which, number), how in (
        (overlap.equal, everything, "are also training examples, so scores are too high"),
        (overlap.near, compared, "nearly equal training examples, so scores may be too high"),
    ):
        if pairs:
            named = [
                f"{place_of(held[index])} as {place_of(train[place])}"
                for index, place in list(pairs.items())[:MOST_NAMED]
            ]
            notes.append(
                f"{len(pairs):,} of the {which} ({100 * len(pairs) / number:.1f} %) {how}: "
                f"{', '.join(named)}{', …' if len(pairs) > MOST_NAMED else ''}"
            )
    return notes


def place_of(example: Any) -> str:
    """Return the location of an example, as in error messages."""
    where = getattr(example, "place", "") or getattr(example, "line", "")
    return f"{example.file}:{where}" if where else str(example.file or "one in memory")


def without(examples: Sequence[Example], left_out: Overlap) -> np.ndarray:
    """Return which examples have nothing in common with training examples, (examples,) bool."""
    return np.array([index not in left_out.equal and index not in left_out.near for index in range(len(examples))])
