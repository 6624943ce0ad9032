"""Designs, and main effects beside least squares."""

from itertools import combinations

import numpy as np
import pytest

from tests.metrics.comparison.conftest import resample
from unmask.metrics.comparison.effects import fractional_grid, full_grid, main_effects, one_factor_at_a_time
from unmask.metrics.comparison.estimates import difference
from unmask.support.errors import UserError


def two_levels(number):
    return {f"factor-{index}": (False, True) for index in range(number)}


def signs(cells):
    """Return -1 for the baseline and 1 for the other level, (cells, factors)."""
    return 2.0 * np.array(cells) - 1


@pytest.mark.parametrize("number", range(1, 16))
def test_fractions_have_resolution_iv_and_the_fewest_runs(number):
    """Columns are balanced and orthogonal, also to products of two others."""
    cells = fractional_grid(two_levels(number))
    columns = signs(cells).T
    assert len(set(cells)) == len(cells) <= 2**number
    assert (False,) * number in cells
    assert columns @ columns.T == pytest.approx(len(cells) * np.eye(number)) and not columns.sum(1).any()
    for first, second in combinations(columns, 2):
        assert not (columns @ (first * second)).any()
    assert len(cells) == (2, 4, 8, 8, *[16] * 4, *[32] * 7)[number - 1]


def scored(rng, cells, effect):
    """Return resampled arms of cells whose mean score is a function of the cell."""
    values = {str(cell): effect(cell) + rng.normal(0, 5, (4, 60)) for cell in cells}
    named = resample(values, resamples=200)
    return {cell: named[str(cell)] for cell in cells}


def test_effects_are_those_of_least_squares():
    """Of full grids and fractions with random effects, whose columns are orthogonal."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        factors = two_levels(int(rng.integers(2, 6)))
        cells = full_grid(factors) if seed % 2 else fractional_grid(factors)
        sizes = rng.normal(0, 5, len(factors))
        arms = scored(rng, cells, lambda cell, sizes=sizes: 50 + sizes @ cell)
        design = np.column_stack([np.ones(len(cells)), np.array(cells, float)])
        expected = np.linalg.lstsq(design, [arms[cell].scores.mean() for cell in cells], rcond=None)[0][1:]
        effects = main_effects(factors, arms)
        assert [effect.value for effect in effects] == pytest.approx(expected)
        assert all(effect.interval[0] < effect.value < effect.interval[1] for effect in effects)
        assert [(effect.factor, effect.level, effect.baseline) for effect in effects] == [
            (name, True, False) for name in factors
        ]


def test_planted_effects_lie_in_the_intervals():
    covered = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        arms = scored(rng, full_grid(two_levels(3)), lambda cell: 50 + 3 * cell[0] - 2 * cell[1])
        effects = main_effects(two_levels(3), arms)
        covered += [e.interval[0] <= size <= e.interval[1] for e, size in zip(effects, (3, -2, 0), strict=True)]
        assert effects[0].p < 0.05
    assert np.mean(covered) > 0.9


def test_one_factor_at_a_time():
    factors = {"rate": (0.15, 0.3, 0.4), "norm": ("pre", "post")}
    cells = one_factor_at_a_time(factors)
    assert cells == [(0.15, "pre"), (0.3, "pre"), (0.4, "pre"), (0.15, "post")]
    arms = scored(np.random.default_rng(0), cells, lambda cell: 50 + 10 * cell[0])
    effects = main_effects(factors, arms)
    assert [(effect.factor, effect.level) for effect in effects] == [("rate", 0.3), ("rate", 0.4), ("norm", "post")]
    for effect, cell in zip(effects, cells[1:], strict=True):
        apart = difference(arms[cell], arms[cells[0]])
        assert (effect.value, effect.interval, effect.p) == (apart.value, apart.interval, apart.p)


def test_missing_cells_are_left_out_with_their_counterparts_or_refused():
    factors = two_levels(2)
    arms = scored(np.random.default_rng(0), full_grid(factors), lambda cell: 50 + 4 * cell[0])
    del arms[True, True]
    assert main_effects(factors, arms)[0].value == pytest.approx(
        arms[True, False].scores.mean() - arms[False, False].scores.mean()
    )
    fraction = scored(np.random.default_rng(0), fractional_grid(two_levels(4)), lambda cell: 50)
    del fraction[False, False, False, False]
    with pytest.raises(UserError, match="no cells compare factor-0 True with False"):
        main_effects(two_levels(4), fraction)


def test_what_is_refused():
    with pytest.raises(UserError, match=r"rate has 3 levels; vary factors with more than two one at a time"):
        fractional_grid({"rate": (1, 2, 3)})
    with pytest.raises(UserError, match=r"rate has the levels \[1, 1\]"):
        full_grid({"rate": (1, 1)})
