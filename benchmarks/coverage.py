"""Do intervals of `unmask compare` cover, and are its decisions right as often as they claim? Simulated accuracies.

A model with seed s is right on example i if m + a_s + b_i + c_si is above 0: normal variables whose variances sum to 1,
so that the accuracy of an arm is known. Arms share part of their seeds' and examples' effects.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from common import add, parse

from unmask.metrics.comparison.decision import arms_to_stop, compare
from unmask.metrics.comparison.estimates import difference, mean_score
from unmask.metrics.comparison.multibootstrap import Resampled, resample_runs

DRAWS, SEEDS, EXAMPLES, VARIANCES = 2000, (3, 5, 10), (200, 1000, 2000), (0.0, 0.003, 0.03)
"""Numbers of draws, seeds and examples, and variances of seeds."""
ACCURACIES = ((60.0, 64.0), (85.0, 87.0), (97.0, 96.0))
DIFFICULTY = 0.6
"""Variance of examples."""
SHARED = 0.5
"""Share of the effects of seeds and examples that arms have in common."""
RESAMPLES, BATCH = 500, 50
"""Number of resamples, and of draws that share them."""


class World(NamedTuple):
    """Arms of known accuracies, in percent, on examples, with seeds whose effects have a variance."""

    accuracies: tuple[float, ...]
    seeds: int
    examples: int
    variance: float


def draw(rng: np.random.Generator, world: World, draws: int) -> np.ndarray:
    """Return whether models are right, times 100: (draws, arms, seeds, examples)."""
    arms = len(world.accuracies)

    def effects(variance: float, seeds: int, examples: int) -> np.ndarray:
        common, own = (rng.standard_normal((draws, size, seeds, examples)) for size in (1, arms))
        return np.sqrt(variance) * (np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * own)

    latent = np.array([NormalDist().inv_cdf(accuracy / 100) for accuracy in world.accuracies])[:, None, None]
    noise = rng.standard_normal((draws, arms, world.seeds, world.examples), np.float32)
    latent = latent + noise * np.sqrt(1 - world.variance - DIFFICULTY)
    return 100.0 * (latent + effects(world.variance, world.seeds, 1) + effects(DIFFICULTY, 1, world.examples) > 0)


def batches(world: World, draws: int) -> list[list[Resampled]]:
    """Return the arms of each draw."""
    arms = len(world.accuracies)
    rng, drawn = np.random.default_rng([world.seeds, world.examples, arms]), []
    for start in range(0, draws, BATCH):
        right = draw(rng, world, min(BATCH, draws - start))
        number, seeds = world.examples, tuple(range(world.seeds))
        weights = np.random.default_rng(start).multinomial(number, np.full(number, 1 / number), RESAMPLES) / number
        resampled = right @ weights.T  # (draws, arms, seeds, resamples)
        drawn += [
            [Resampled(seeds, each[arm].mean(1), values[arm], number) for arm in range(arms)]
            for each, values in zip(right, resampled, strict=True)
        ]
    return drawn


def intervals(world: World, draws: int) -> dict[str, float]:
    """Return how often intervals of an arm and a difference cover, in percent, and those of the paper's code."""
    covered, accuracy = [], world.accuracies[0]
    for first, second in batches(world, draws):
        _, low, high = mean_score(first)
        apart, truth = difference(first, second), accuracy - world.accuracies[1]
        ends = np.percentile((resample_runs(first) - resample_runs(second)).mean(1), [2.5, 97.5])
        covered.append(
            (low <= accuracy <= high, apart.interval[0] <= truth <= apart.interval[1], ends[0] <= truth <= ends[1])
        )
    return dict(zip(("arm", "difference", "percentiles"), 100 * np.mean(covered, 0), strict=True))


def decisions(world: World, draws: int) -> dict[str, float]:
    """Return how often one arm is recommended, and how often one that is not best is, in percent."""
    accuracies, recommended = world.accuracies, []
    for arms in batches(world, draws):
        name = compare({str(number): arm for number, arm in enumerate(arms)}).recommended
        is_best = (
            name is not None and accuracies[int(name)] == max(accuracies) and accuracies.count(max(accuracies)) == 1
        )
        recommended.append((name is not None, name is not None and not is_best))
    return dict(zip(("recommended", "false"), 100 * np.mean(recommended, 0), strict=True))


def race(world: World, draws: int) -> dict[str, float]:
    """Return how often the best arm is stopped, and the share of runs that racing saves, in percent."""
    stopped, saved = [], []
    for every in batches(world, draws):
        arms, runs = {str(number): arm for number, arm in enumerate(every)}, 2 * len(every)
        for number in range(2, world.seeds):  # seeds so far
            so_far = {name: arm.of_seeds(range(number)) for name, arm in arms.items()}
            losers = arms_to_stop(so_far, looks=world.seeds - 2, starters=len(every))
            arms = {name: arm for name, arm in arms.items() if name not in losers}
            runs += len(arms)
        stopped.append(str(np.argmax(world.accuracies)) not in arms)
        saved.append(1 - runs / (world.seeds * len(every)))
    return {"best_stopped": 100 * float(np.mean(stopped)), "saved": 100 * float(np.mean(saved))}


CASES: dict[str, Callable[[tuple[float, float]], tuple[Callable[..., dict[str, float]], tuple[float, ...], int]]] = {
    "intervals": lambda pair: (intervals, pair, 1),
    "two same arms": lambda pair: (decisions, pair[:1] * 2, 5),
    "five same arms": lambda pair: (decisions, pair[:1] * 5, 10),
    "two different arms": lambda pair: (decisions, pair, 10),
    "race of same arms": lambda pair: (race, pair[:1] * 5, 10),
    "race of different arms": lambda pair: (race, (pair[0], *(pair[0] - 3,) * 4), 10),
}
"""For two accuracies what is measured, the accuracies of the arms, and which share of the draws."""


def main() -> None:
    """Simulate all cases; a tenth of the draws for decisions and races."""
    options = parse(__doc__, CASES)
    for index, (seeds, examples, variance) in enumerate(product(SEEDS, EXAMPLES, VARIANCES)):
        pair = ACCURACIES[(index + index // 3) % 3]
        for case in options.names:
            measure, accuracies, divisor = CASES[case](pair)
            result = measure(World(accuracies, seeds, examples, variance), max(1, DRAWS // divisor))
            key = {"case": case, "seeds": seeds, "examples": examples, "variance": variance}
            record = {name: round(float(value), 2) for name, value in result.items()}
            add("coverage", {**key, "accuracies": list(accuracies)}, record)


if __name__ == "__main__":
    main()
