"""Designs over settings (factors) with several values (levels), and the effects of levels by comparison of their arms.

A design is a list of cells, each of which is an arm: one level per factor. The main effect of a level is the mean over
the cells that have it minus the mean over those with the baseline level of that factor. Only cells are compared that
differ in nothing else: all cells of a full grid, two in a design of one factor at a time. A regular fraction has no
such cells, but the levels of all other factors equally often on both sides. Intervals are those of `estimates`: 95 %
each, paired over the seeds that all cells share.

Fractions of two-level factors are regular: the first factors are a full grid, and each other one is a product of an odd
number of these. Main effects are then confounded neither with each other nor with effects of pairs (resolution IV), but
with effects of triples, which are added to them. These are the fewest runs possible: 2^k runs have room for 2^(k - 1)
factors (Box, Hunter and Hunter 2005, chapters 6 and 7).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from unmask.metrics.comparison.estimates import contrast
from unmask.metrics.comparison.multibootstrap import Resampled
from unmask.support.errors import UserError

Cell = tuple[Hashable, ...]
"""The level of each factor, in the order of the factors."""
Factors = Mapping[str, Sequence[Hashable]]
"""Levels by factor, the baseline level first."""


class MainEffect(NamedTuple):
    """The main effect of a level.

    Attributes:
        factor: its factor.
        level: the level.
        baseline: the level with which it is compared.
        value: mean score with the level minus mean score with the baseline level.
        interval: its 95 % interval.
        p: p-value of no effect, by itself: not adjusted for the number of effects.
    """

    factor: str
    level: Hashable
    baseline: Hashable
    value: float
    interval: tuple[float, float]
    p: float


def full_grid(factors: Factors) -> list[Cell]:
    """Return all combinations of levels."""
    return list(product(*_checked(factors)))


def one_factor_at_a_time(factors: Factors) -> list[Cell]:
    """Return the baseline, and the cells that differ from it in one factor."""
    levels = _checked(factors)
    baseline = tuple(values[0] for values in levels)
    others = [
        (*baseline[:index], level, *baseline[index + 1 :])
        for index, values in enumerate(levels)
        for level in values[1:]
    ]
    return [baseline, *others]


def fractional_grid(factors: Factors) -> list[Cell]:
    """Return the smallest regular fraction of a full grid of two-level factors with resolution IV; see the module.

    Raises:
        UserError: a factor has more than two levels (use `one_factor_at_a_time`).
    """
    levels = _checked(factors)
    for name, values in factors.items():
        if len(values) != 2:
            raise UserError(f"{name} has {len(values)} levels", remedy="vary factors with more than two one at a time")
    basic = 1
    while 2 ** (basic - 1) < len(levels):
        basic += 1
    words = [word for word in range(1, 2**basic) if word.bit_count() % 2]  # factors that are multiplied
    words.sort(key=lambda word: (word.bit_count() > 1, word.bit_count(), word))
    runs = range(2**basic)
    return [
        tuple(values[(run & word).bit_count() % 2] for values, word in zip(levels, words, strict=False)) for run in runs
    ]


def main_effects(factors: Factors, cells: Mapping[Cell, Resampled]) -> list[MainEffect]:
    """Return the main effect of each level that is not a baseline.

    Args:
        factors: the factors.
        cells: the arm of each cell of a design, resampled together.

    Raises:
        UserError: a level is not comparable: no cell differs from one with the baseline level in nothing else, and
            the levels of other factors do not occur equally often with both.
    """
    effects = []
    for index, (name, levels) in enumerate(factors.items()):
        for level in levels[1:]:
            ups, downs = _comparable(index, level, levels[0], cells)
            if not ups:
                raise UserError(f"no cells compare {name} {level} with {levels[0]}", remedy="add cells that do")
            parts = [(1 / len(ups), cells[cell]) for cell in ups] + [(-1 / len(downs), cells[cell]) for cell in downs]
            estimate = contrast(parts)
            effects.append(MainEffect(name, level, levels[0], estimate.value, estimate.interval, estimate.p))
    return effects


def _comparable(
    index: int, level: Hashable, baseline: Hashable, cells: Iterable[Cell]
) -> tuple[list[Cell], list[Cell]]:
    """Return the cells with a level, and those with the baseline level, of the factor of an index.

    These are the cells that have a counterpart on the other side, which differs in nothing else. If there are none, as
    in a fraction, they are all, but only if every other level occurs equally often on both sides; otherwise none.
    """
    ups, downs = ({_without(index, cell): cell for cell in cells if cell[index] == at} for at in (level, baseline))
    both = [rest for rest in ups if rest in downs]
    if both:
        return [ups[rest] for rest in both], [downs[rest] for rest in both]
    counts = [[Counter(column) for column in zip(*side, strict=True)] for side in (ups, downs)]
    return (list(ups.values()), list(downs.values())) if counts[0] == counts[1] else ([], [])


def _without(index: int, cell: Cell) -> Cell:
    return (*cell[:index], *cell[index + 1 :])


def _checked(factors: Factors) -> list[Sequence[Hashable]]:
    """Return the levels of all factors."""
    for name, levels in factors.items():
        if len(levels) < 2 or len(set(levels)) < len(levels):
            raise UserError(
                f"{name} has the levels {list(levels)}", remedy="give each factor two or more different ones"
            )
    return list(factors.values())
