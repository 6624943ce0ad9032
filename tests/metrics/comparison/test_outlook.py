"""Extrapolations of planted power laws, and what is refused."""

import numpy as np
import pytest

from unmask.metrics.comparison.outlook import EXPONENTS, extrapolate
from unmask.support.errors import UserError

BUDGETS = np.repeat([1 / 8, 1 / 4, 1 / 2, 1], 3)
TARGETS = (4, 10)


def planted(seed, noise=0.02):
    """Return losses of three seeds at four budgets, and those of another run at the targets."""
    rng = np.random.default_rng(seed)
    asymptote, height, exponent = 1 + 2 * rng.random(), 0.3 + rng.random(), 0.1 + 0.6 * rng.random()

    def losses(budgets):
        return asymptote + height * np.asarray(budgets) ** -exponent + rng.normal(0, noise, len(budgets))

    return losses(BUDGETS), losses(TARGETS)


def test_planted_runs_lie_in_the_intervals():
    """In 80 % at least, and not only because the intervals are wide."""
    hits, widths = [], []
    for seed in range(100):
        losses, later = planted(seed)
        outlook = extrapolate(BUDGETS, losses, TARGETS, bounds=(0, 10), less_is_better=True)
        hits.append((outlook.low <= later) & (later <= outlook.high))
        widths.append((outlook.high - outlook.low) / np.ptp(losses))
        assert (outlook.low < outlook.scores).all() and (outlook.scores < outlook.high).all()
        assert outlook.high[1] - outlook.low[1] > outlook.high[0] - outlook.low[0]
    assert (np.mean(hits, 0) >= 0.8).all(), np.mean(hits, 0)
    assert np.median(widths) < 1


def test_curves_near_their_asymptote_are_not_extrapolated_beyond_it():
    """With exponents from 1 to 2, almost nothing is left to gain at the largest budget."""
    errors = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        asymptote, exponent = rng.uniform(70, 98), rng.uniform(1, 2)
        height = rng.uniform(3, 40) * 8**-exponent
        scores = asymptote - height * BUDGETS**-exponent + rng.normal(0, 0.3, len(BUDGETS))
        outlook = extrapolate(BUDGETS, scores, TARGETS, bounds=(0, 100))
        errors.append(outlook.scores - (asymptote - height * np.array(TARGETS) ** -exponent))
    assert (np.abs(np.mean(errors, 0)) < 1).all(), np.mean(errors, 0)


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.exhaustive) for n in (1, 2))])
def test_intervals_are_those_of_sampling_all_curves(seed, monkeypatch):
    """Against weighted draws of exponents, values, slopes and noises from wide ranges, without the closed form."""
    monkeypatch.setattr("unmask.metrics.comparison.outlook.DRIFT", 0.0)
    monkeypatch.setattr("unmask.metrics.comparison.outlook.FLOOR", 0.0)
    monkeypatch.setattr("unmask.metrics.comparison.outlook.DRAWS", 40_000)
    losses, _ = planted(seed, 0.1)
    outlook = extrapolate(BUDGETS, losses, TARGETS, bounds=(0, 10), less_is_better=True)
    rng, number = np.random.default_rng(seed), 2_000_000
    exponents = rng.choice(EXPONENTS, number)
    ends = losses[BUDGETS == 1].mean() + rng.uniform(-0.5, 0.5, number)
    slopes = rng.uniform(0, 2, number)  # minus the derivative at the budget 1
    noises = np.exp(rng.uniform(np.log(0.03), np.log(0.5), number))
    squares = sum(
        (loss - ends - slopes * (budget**-exponents - 1) / exponents) ** 2
        for budget, loss in zip(BUDGETS, losses, strict=True)
    )
    weights = -len(losses) * np.log(noises) - squares / (2 * noises**2)
    weights = np.exp(weights - weights.max()) * ((exponents < 0) | (ends - slopes / exponents >= 0))
    drawn = rng.choice(number, 40_000, p=weights / weights.sum())
    for index, target in enumerate(TARGETS):
        later = ends[drawn] + slopes[drawn] * (target ** -exponents[drawn] - 1) / exponents[drawn]
        later = np.clip(later + noises[drawn] * rng.standard_normal(len(drawn)), 0, 10)
        expected = np.quantile(later, [0.1, 0.5, 0.9])
        found = [outlook.low[index], outlook.scores[index], outlook.high[index]]
        assert found == pytest.approx(expected, abs=0.05 * (expected[2] - expected[0])), target


def test_scores_are_losses_upside_down():
    for seed in range(15):
        losses, _ = planted(seed)
        down = extrapolate(BUDGETS, losses, TARGETS, bounds=(0, 10), less_is_better=True)
        up = extrapolate(BUDGETS, 100 - losses, TARGETS, bounds=(90, 100))
        assert up.scores == pytest.approx(100 - down.scores)
        assert (up.low, up.high) == (pytest.approx(100 - down.high), pytest.approx(100 - down.low))
        scaled = extrapolate(1e6 * BUDGETS, losses, [4e6, 1e7], bounds=(0, 10), less_is_better=True)
        assert scaled.scores == pytest.approx(down.scores), "units of the budget do not matter"


def test_outlooks_stay_in_bounds_and_noise_widens_them():
    widths = []
    for noise in (0.0, 0.05, 0.2):
        losses, _ = planted(0, noise)
        outlook = extrapolate(BUDGETS, 100 - losses, TARGETS, bounds=(0, 100))
        assert (outlook.high <= 100).all()
        widths.append(float(outlook.high[1] - outlook.low[1]))
    assert widths == sorted(widths)


@pytest.mark.parametrize(
    ("budgets", "scores", "message"),
    [
        ([1, 2, 2], [50, 60, 61], "scores at 2 budgets cannot be extrapolated; train with 3 or more"),
        ([1, 2, 4], [50, 60, float("nan")], "a score is not finite"),
        ([0, 2, 4], [50, 60, 61], "a budget not above 0"),
        ([1, 2, 4], [50, 60, 161], "a score is not from 0 to 100"),
        ([1, 2, 4, 8, 1, 2, 4, 8], [80, 70, 60, 50] * 2, "scores do not improve with the budget"),
        ([1, 2, 4, 8, 1, 2, 4, 8], [50] * 8, "all scores are the same, whatever the budget"),
    ],
)
def test_what_is_refused(budgets, scores, message):
    with pytest.raises(UserError, match=message):
        extrapolate(budgets, scores, [20], bounds=(0, 100))
