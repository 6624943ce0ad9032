"""Which arms of a race stop, and how often the best one does."""

import numpy as np

from tests.metrics.comparison.conftest import resample
from unmask.metrics.comparison.decision import arms_to_stop


def run(arms, seeds):
    """Return the arms that reach the end of a race with so many seeds, and the number of runs."""
    starters, runs = len(arms), 2 * len(arms)
    for number in range(2, seeds):
        so_far = {name: arm.of_seeds(range(number)) for name, arm in arms.items()}
        stopped = arms_to_stop(so_far, looks=seeds - 2, starters=starters)
        assert all(leader in arms and leader not in stopped for leader in stopped.values())
        arms = {name: arm for name, arm in arms.items() if name not in stopped}
        runs += len(arms)
    return arms, runs


def test_the_best_arm_is_rarely_stopped(planted):
    """In at most 5 of 100 races of five equal arms, of which the first counts as the best."""
    lost = 0
    for seed in range(100):
        arms = planted(np.random.default_rng(seed), [70] * 5, examples=100, seed_effect=2.0)
        lost += "arm-0" not in run(resample(arms, resamples=200), 5)[0]
    assert lost <= 5


def test_arms_that_are_much_worse_stop_early(planted):
    for seed in range(50):
        arms = planted(np.random.default_rng(seed), [70, 30, 31, 69], examples=100)
        left, runs = run(resample(arms, resamples=200), 6)
        assert {"arm-1", "arm-2"}.isdisjoint(left) and runs <= 4 * 6 - 2 * 2


def test_nothing_is_stopped_after_the_first_seed_or_without_rivals(planted):
    arms = resample(planted(np.random.default_rng(0), [70, 10], seeds=5), resamples=200)
    first = {name: arm.of_seeds([0]) for name, arm in arms.items()}
    assert arms_to_stop(first, looks=3, starters=2) == {}
    assert arms_to_stop({"arm-0": arms["arm-0"]}, looks=3, starters=1) == {}
    assert arms_to_stop(arms, looks=3, starters=2) == {"arm-1": "arm-0"}
    unlike = {"arm-0": arms["arm-0"].of_seeds([0, 1]), "arm-1": arms["arm-1"].of_seeds([2, 3])}
    assert arms_to_stop(unlike, looks=3, starters=2) == {}, "they share no seeds"
