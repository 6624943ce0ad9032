"""Do intervals of `unmask compare` cover, and are its decisions right as often as they claim? Simulated accuracies.

A model with seed s is right on example i if m + a_s + b_i + c_si is above 0: normal variables whose variances sum to 1,
so that the accuracy of an arm is known. Arms share part of their seeds' and examples' effects.
"""

from __future__ import annotations

import argparse
from itertools import product
from statistics import NormalDist

import numpy as np
from common import add

from unmask.metrics.comparison.counts import mean
from unmask.metrics.comparison.decision import compare
from unmask.metrics.comparison.estimates import difference, mean_score
from unmask.metrics.comparison.multibootstrap import Resampled, Scores, resample, resample_runs
from unmask.metrics.comparison.racing import arms_to_stop

SEEDS, EXAMPLES, VARIANCES = (3, 5, 10), (200, 1000, 2000), (0.0, 0.003, 0.03)
"""Numbers of seeds and examples, and variances of seeds."""
ACCURACIES = ((60.0, 64.0), (85.0, 87.0), (97.0, 96.0))
DIFFICULTY = 0.6
"""Variance of examples."""
SHARED = 0.5
"""Share of the effects of seeds and examples that arms have in common."""
RESAMPLES, BATCH = 500, 50
"""Number of resamples, and of draws that share them."""


def draw(
    rng: np.random.Generator, accuracies: tuple[float, ...], shape: tuple[int, int, int], variance: float
) -> np.ndarray:
    """Return whether models are right, times 100: (draws, arms, seeds, examples)."""
    draws, seeds, examples = shape

    def effects(variance: float, seeds: int, examples: int) -> np.ndarray:
        common, own = (rng.standard_normal((draws, arms, seeds, examples)) for arms in (1, len(accuracies)))
        return np.sqrt(variance) * (np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * own)

    mean_of = np.array([NormalDist().inv_cdf(accuracy / 100) for accuracy in accuracies])[:, None, None]
    noise = rng.standard_normal((draws, len(accuracies), seeds, examples), np.float32) * np.sqrt(
        1 - variance - DIFFICULTY
    )
    latent = mean_of + effects(variance, seeds, 1) + effects(DIFFICULTY, 1, examples) + noise
    return 100.0 * (latent > 0)


def batches(
    accuracies: tuple[float, ...], seeds: int, examples: int, variance: float, draws: int
) -> list[list[Resampled]]:
    """Return the arms of each draw."""
    rng, drawn = np.random.default_rng([seeds, examples, len(accuracies)]), []
    for start in range(0, draws, BATCH):
        right = draw(rng, accuracies, (min(BATCH, draws - start), seeds, examples), variance)
        arms = {
            str(index): Scores(range(seeds), right[index][..., None], mean) for index in np.ndindex(right.shape[:2])
        }
        resampled = list(resample(arms, resamples=RESAMPLES, seed=start).values())
        drawn += [resampled[at : at + len(accuracies)] for at in range(0, len(resampled), len(accuracies))]
    return drawn


def intervals(
    accuracies: tuple[float, ...], seeds: int, examples: int, variance: float, draws: int
) -> dict[str, float]:
    """Return how often intervals of an arm and a difference cover, in percent, and those of the paper's code."""
    covered = []
    for first, second in batches(accuracies, seeds, examples, variance, draws):
        _, low, high = mean_score(first)
        apart, truth = difference(first, second), accuracies[0] - accuracies[1]
        ends = np.percentile((resample_runs(first) - resample_runs(second)).mean(1), [2.5, 97.5])
        covered.append(
            (low <= accuracies[0] <= high, apart.interval[0] <= truth <= apart.interval[1], ends[0] <= truth <= ends[1])
        )
    return dict(zip(("arm", "difference", "percentiles"), 100 * np.mean(covered, 0), strict=True))


def decisions(
    accuracies: tuple[float, ...], seeds: int, examples: int, variance: float, draws: int
) -> dict[str, float]:
    """Return how often one arm is recommended, and how often one that is not best is, in percent."""
    best, recommended = max(accuracies), []
    for arms in batches(accuracies, seeds, examples, variance, draws):
        name = compare({str(number): arm for number, arm in enumerate(arms)}).recommended
        is_false = name is not None and (accuracies[int(name)] < best or accuracies.count(best) > 1)
        recommended.append((name is not None, is_false))
    return dict(zip(("recommended", "false"), 100 * np.mean(recommended, 0), strict=True))


def race(accuracies: tuple[float, ...], seeds: int, examples: int, variance: float, draws: int) -> dict[str, float]:
    """Return how often the best arm is stopped, and the share of runs that racing saves, in percent."""
    stopped, saved = [], []
    for every in batches(accuracies, seeds, examples, variance, draws):
        arms, runs = {str(number): arm for number, arm in enumerate(every)}, 2 * len(every)
        for number in range(2, seeds):  # seeds so far
            so_far = {name: arm.of_seeds(range(number)) for name, arm in arms.items()}
            losers = arms_to_stop(so_far, looks=seeds - 2, starters=len(every))
            arms = {name: arm for name, arm in arms.items() if name not in losers}
            runs += len(arms)
        stopped.append(str(np.argmax(accuracies)) not in arms)
        saved.append(1 - runs / (seeds * len(every)))
    return {"best_stopped": 100 * float(np.mean(stopped)), "saved": 100 * float(np.mean(saved))}


def main() -> None:
    """Simulate all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000, help="a tenth as many for decisions and races")
    parser.add_argument("--cases", nargs="+", help="words with which the names of cases begin; all by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="numbers of seeds")
    options = parser.parse_args()
    for index, (seeds, examples, variance) in enumerate(product(options.seeds, EXAMPLES, VARIANCES)):
        pair = ACCURACIES[(index + index // 3) % 3]
        near, far = (pair[0],) * 5, (pair[0],) + (pair[0] - 3,) * 4
        for case, measure, accuracies, divisor in (
            ("intervals", intervals, pair, 1),
            ("two same arms", decisions, (pair[0],) * 2, 5),
            ("five same arms", decisions, near, 10),
            ("two different arms", decisions, pair, 10),
            ("race of same arms", race, near, 10),
            ("race of different arms", race, far, 10),
        ):
            if options.cases and not case.startswith(tuple(options.cases)):
                continue
            result = measure(accuracies, seeds, examples, variance, max(1, options.draws // divisor))
            keys = {
                "case": case,
                "seeds": seeds,
                "examples": examples,
                "variance": variance,
                "accuracies": list(accuracies),
            }
            add(
                "coverage",
                {**keys, **{name: round(float(value), 2) for name, value in result.items()}},
                instead=list(keys),
            )


if __name__ == "__main__":
    main()
