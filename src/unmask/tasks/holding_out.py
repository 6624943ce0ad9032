"""Splits of examples into those to train on and a tenth to evaluate on, without equal texts on both sides.

What is split are units: examples with equal texts (see `unmask.data.labelled.duplicates`), the questions about a
passage, or the sentences of a document. Units differ in size, so a tenth of the *examples* is held out.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import compress, islice
from typing import Any, TypeVar

import numpy as np

from unmask.data.batches.rng import derive_rng
from unmask.data.labelled.duplicates import Overlap
from unmask.data.labelled.identities import Identities
from unmask.support.errors import UserError, counted

DEV_SHARE = 0.1
"""Share of the training examples that is held out if no dev data is given."""
ENOUGH = 100
"""Number of examples, predicted by a model that was not trained on them, that are enough to tune a setting by."""
MOST_NAMED = 3
"""Equal examples that a note names."""
Example = TypeVar("Example")


def choose_stratified(
    examples: Sequence[Any], identities: Identities, strata: Sequence[Hashable], seed: int
) -> np.ndarray:
    """Choose a random tenth of the examples, stratified; examples with equal texts stay together.

    Only if no text is rare enough to be held out with all its copies, equal texts are on both sides.

    Args:
        examples: the examples to split, each with a `file`.
        identities: what those with equal texts have in common.
        strata: the stratum of each example, for example its label; equal texts are in that of the first one.
        seed: seed of the random choice.

    Returns:
        Which examples are held out, (examples,) bool.

    Raises:
        UserError: there are too few examples.
    """
    held = _choose_stratified(identities.firsts(), strata, seed)
    if not held.any():  # a few texts, each many times: equal ones are then on both sides, which `describe_overlap` says
        held = _choose_stratified(np.arange(len(examples)), strata, seed)
    if not held.any():
        message = _too_few(len(examples), "example")
        if len(set(strata)) == len(examples) > 1 / DEV_SHARE:
            message = f"each of the {len(examples)} examples has a different label (numbers are a task regression)"
        raise UserError(message, file=examples[0].file)
    return held


def _choose_stratified(firsts: np.ndarray, strata: Sequence[Hashable], seed: int) -> np.ndarray:
    """Return which examples are held out, (examples,) bool, possibly none: random units, given each example's first."""
    units = np.flatnonzero(firsts == np.arange(len(firsts)))
    sizes = np.bincount(firsts, minlength=len(firsts))[units]
    numbers = {stratum: number for number, stratum in enumerate(dict.fromkeys(strata))}
    indices = np.fromiter(map(numbers.__getitem__, strata), np.int64, len(strata))[units]
    places = np.full(len(numbers), len(units))
    places[indices[::-1]] = np.arange(len(units))[::-1]  # the last value stays: the first unit of each stratum
    indices = np.argsort(np.argsort(places, kind="stable"))[indices]  # in the order of these
    by_stratum = np.split(np.argsort(_small(indices), kind="stable"), np.cumsum(np.bincount(indices))[:-1])
    chosen: list[int] = []
    seen = total = 0
    for number, members in enumerate(by_stratum):
        size = int(sizes[members].sum())
        seen += size
        wanted = round(DEV_SHARE * seen) - total  # some small strata give one example, others none
        # no stratum makes up for rare ones by giving more than its own tenth
        room = min(wanted, math.ceil(DEV_SHARE * size), size - 1)
        order = members[derive_rng(seed, "dev", number).permutation(len(members))]
        for unit, copies in zip(order.tolist(), sizes[order].tolist(), strict=True):
            if room <= 0:
                break
            if copies <= room:
                chosen.append(unit)
                room -= copies
                total += copies
    held = np.zeros(len(firsts), bool)
    held[units[chosen]] = True
    return held[firsts]


def _small(numbers: np.ndarray) -> np.ndarray:
    """Return numbers from 0 in as few bytes as they need: those of two bytes are sorted by counting."""
    return numbers.astype(np.min_scalar_type(numbers.max(initial=0)))


def choose_enough_units(
    examples: Sequence[Any], units: Sequence[Hashable], seed: int, *path: int, what: str
) -> np.ndarray:
    """Return what `choose_units` returns, if there is anything.

    Args:
        examples: the examples to split, each with a `file`.
        units: the unit of each example.
        seed: seed of the random choice.
        path: further numbers that the choice depends on.
        what: what a unit is called.

    Raises:
        UserError: there are too few units, or they are too large.
    """
    held = choose_units(units, seed, *path)
    if not held.any():
        raise UserError(_too_few(len(set(units)), what), file=examples[0].file)
    return held


def _too_few(number: int, what: str) -> str:
    return f"{counted(number, what)} {'is' if number == 1 else 'are'} too few to hold out a tenth"


def choose_units(units: Sequence[Hashable], seed: int, *path: int) -> np.ndarray:
    """Choose random units, so many that their examples are as near as possible to a tenth; there may be none.

    Args:
        units: the unit of each example.
        seed: seed of the random choice.
        path: further numbers that the choice depends on.

    Returns:
        Which examples are held out, (examples,) bool.
    """
    members, total = _group(units), 0
    held = np.zeros(len(units), bool)
    for rank in derive_rng(seed, "dev", *path).permutation(len(members)):
        size = len(members[rank])
        if abs(total + size - DEV_SHARE * len(units)) < abs(total - DEV_SHARE * len(units)):
            held[members[rank]] = True
            total += size
    return held


def parted(examples: Sequence[Example], held: np.ndarray) -> tuple[list[Example], list[Example]]:
    """Return the examples that are not held out, and those that are, given which are, (examples,) bool."""
    return list(compress(examples, (~held).tolist())), list(compress(examples, held.tolist()))


def assign_folds(units: Sequence[Hashable], strata: Sequence[Hashable], number: int, seed: int) -> np.ndarray:
    """Return the fold of each example, (examples,), from 0: folds of about equal size, also within each stratum.

    Examples of a unit are in the same fold; the units of a stratum, if there are several, are in different ones.

    Args:
        units: the unit of each example, such as what its text has in common with equal ones.
        strata: the stratum of each example, for example its label; a unit is in that of its first example.
        number: number of folds.
        seed: seed of the random choice.
    """
    by_stratum: dict[Hashable, list[list[int]]] = {}
    for unit in _group(units):
        by_stratum.setdefault(strata[unit[0]], []).append(unit)
    folds, sizes = np.zeros(len(units), np.int64), np.zeros(number, np.int64)
    for stratum, members in enumerate(by_stratum.values()):
        inside = np.zeros(number, np.int64)
        for rank in derive_rng(seed, "folds", stratum).permutation(len(members)):
            fold = int(np.lexsort((sizes, inside))[0])  # the smallest within the stratum, of these the smallest
            folds[members[rank]] = fold
            inside[fold] += len(members[rank])
            sizes[fold] += len(members[rank])
    return folds


def _group(keys: Sequence[Hashable]) -> list[list[int]]:
    """Return the indices of equal keys, in order of their first one."""
    firsts: dict[Hashable, int] = {}
    more: dict[int, list[int]] = {}
    for index, key in enumerate(keys):
        first = firsts.setdefault(key, index)
        if first != index:
            more.setdefault(first, [first]).append(index)
    return [more.get(first, [first]) for first in firsts.values()]


def describe_overlap(overlap: Overlap, train: Sequence[Any], held: Sequence[Any], kind: str) -> list[str]:
    """Return notes about the held-out examples that are training examples.

    Args:
        overlap: see `unmask.data.labelled.duplicates.overlap`; if it is an estimate, it is said what from.
        train, held: the examples.
        kind: what the held-out ones are called, such as "dev".
    """
    notes = []
    everything = f"{len(held):,} {kind} examples"
    compared = everything
    if overlap.compared + len(overlap.equal) < len(held):
        compared = f"{overlap.compared:,} {kind} examples that were compared"
    else:
        overlap = overlap._replace(compared=len(held))  # equal examples are among those that were looked at
    if overlap.equal:
        share = f"{len(overlap.equal):,} of the {everything} ({100 * len(overlap.equal) / len(held):.1f} %)"
        how = "are also training examples, so scores are too high"
        notes.append(f"{share} {how}: {_named(overlap.equal, train, held)}")
    how = "nearly equal training examples, so scores may be too high"
    if overlap.near and overlap.searched < len(train):
        sample = f"{overlap.searched:,} of the {len(train):,} training examples"
        how = f"nearly equal one of {sample}, {_estimated(overlap, len(train))}"
    if overlap.near:
        share = f"{len(overlap.near):,} of the {compared} ({100 * len(overlap.near) / overlap.compared:.1f} %)"
        notes.append(f"{share} {how}: {_named(overlap.near, train, held)}")
    elif overlap.compared and overlap.searched < len(train):
        notes.append(
            f"none of the {compared} nearly equals one of {overlap.searched:,} of the {len(train):,} training examples"
        )
    return notes


def _estimated(overlap: Overlap, size: int) -> str:
    """Return how many nearly equal any training example: most if each equals one, least if each equals many."""
    least = 100 * len(overlap.near) / overlap.compared
    most = min(100.0, least * size / overlap.searched)
    return f"estimated {least:.1f} to {most:.1f} % one of all, so scores may be too high"


def describe_contradictions(equals: Sequence[int | None], examples: Sequence[Any]) -> list[str]:
    """Return a note about the training examples with equal texts and different labels.

    Args:
        equals: such an example for each, by number; None: there is none.
        examples: the examples.
    """
    pairs = {number: equal for number, equal in enumerate(equals) if equal is not None}
    if not pairs:
        return []
    share = f"{len(pairs):,} of the {len(examples):,} training examples ({100 * len(pairs) / len(examples):.1f} %)"
    named = _named({number: equal for number, equal in pairs.items() if equal > number}, examples, examples)
    return [f"{share} have the text of another one, but for case and punctuation, and other labels: {named}"]


def _named(pairs: Mapping[int, int], train: Sequence[Any], held: Sequence[Any]) -> str:
    """Return where some held-out examples are, and the training examples that they equal."""
    some = [
        f"{place_of(held[index])} as {place_of(train[place])}" for index, place in islice(pairs.items(), MOST_NAMED)
    ]
    return f"{', '.join(some)}{', …' if len(pairs) > MOST_NAMED else ''}"


def place_of(example: Any) -> str:
    """Return the location of an example, as in error messages."""
    where = getattr(example, "place", "") or getattr(example, "line", "")
    return f"{example.file}:{where}" if where else str(example.file or "one in memory")


def without(examples: Sequence[Example], left_out: Overlap) -> np.ndarray:
    """Return which examples have nothing in common with training examples, (examples,) bool."""
    return np.array([index not in left_out.equal and index not in left_out.near for index in range(len(examples))])
