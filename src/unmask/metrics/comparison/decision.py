"""Which of several arms is best, and which cannot be told from it.

The best arm is chosen by the same data, so intervals of the differences from it hold simultaneously for all pairs of
arms: the probability that any of them misses its difference is 5 %. Each pair is tested at the level at which the
largest of all studentized differences exceeds its normal quantile in 5 % of draws (max-t; Hothorn, Bretz and Westfall
2008, section 4). A draw takes the examples' part of all differences from one resample of the multi-bootstrap, and the
seeds' part of each arm from a normal distribution. Resampled seeds would not do: three of them have ten resamples,
whose largest difference is never far. The interval of a pair at that level then takes its own degrees of freedom into
account; see `estimates`. Holm's procedure would give no intervals, and the level of its first step is below that of
max-t.

An arm is recommended if all others are worse by these intervals. Otherwise it is too close to call among those that are
not.

Racing: after each seed, arms that are clearly worse than the leader stop, so that their other seeds are not trained.

The error over all looks is at most 5 %: the probability that the best arm is ever stopped. Each look spends an equal
share of it, and within a look each rival of an arm an equal share of that (Bonferroni; the looks are planned, so no
sequential boundary is needed). The best arm is stopped only if it is clearly worse than one of its rivals at one of the
looks, and these probabilities sum to 5 % at most. The tests are those of `estimates`, one-sided, on the seeds that both
arms have. At the first seed nothing is stopped, since how far seeds differ is not known yet.

Budgets can be raced like seeds (rungs), but then the error is about the scores at that budget: an arm that learns more
slowly at first may be best in the end. See `outlook` before stopping such an arm.

Maron and Moore 1997, "The racing algorithm: model selection for lazy learners".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from unmask.metrics.comparison.estimates import (
    LEVEL,
    NORMAL,
    Estimate,
    common_seeds,
    contrast,
    difference,
    mean_score,
    pooled_seeds,
)
from unmask.metrics.comparison.multibootstrap import MIN_SEEDS, Resampled, interquartile_interval
from unmask.support.errors import counted


@dataclass(frozen=True)
class Standing:
    """How an arm stands.

    Attributes:
        name: of the arm.
        score: mean over its seeds.
        interval: its 95 % interval.
        difference: how far the arm is from the best one, 0 or less; compared on the seeds of both. It may be positive
            if they have different seeds.
        difference_interval: its 95 % interval, which holds for all pairs of arms simultaneously.
        p: p-value of no difference from the best arm, adjusted for all pairs; 1 for the best.
        interquartile: interquartile mean over seeds and the ends of its 95 % interval; None: too few seeds.
    """

    name: str
    score: float
    interval: tuple[float, float]
    difference: float
    difference_interval: tuple[float, float]
    p: float
    interquartile: tuple[float, float, float] | None


@dataclass(frozen=True)
class RankedArms:
    """Arms, the best first.

    Attributes:
        standings: how each arm stands.
        contenders: names of the arms that cannot be told from the best one, which is the first.
        notes: what limits the comparison.
    """

    standings: tuple[Standing, ...]
    contenders: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def recommended(self) -> str | None:
        """The only contender; None: it is too close to call."""
        return self.contenders[0] if len(self.contenders) == 1 else None


def compare(arms: Mapping[str, Resampled], *, seed: int = 0) -> RankedArms:
    """Compare arms with the best of them.

    Args:
        arms: by their names; all resampled together (`multibootstrap.resample`), or averaged over tasks.
        seed: of the draws.
    """
    means = {name: mean_score(arm) for name, arm in arms.items()}
    order = sorted(arms, key=lambda name: -means[name][0])
    best = order[0]
    named = [arms[name] for name in sorted(arms)]  # in whatever order they are, the draws are the same
    maxima = largest_differences(named, seed)
    level, pooled = family_level(maxima), pooled_seeds(named)
    standings = []
    for name in order:
        apart = Estimate(0.0, 0.0, 0.0) if name == best else difference(arms[name], arms[best], pooled=pooled)
        standings.append(
            Standing(
                name,
                means[name][0],
                means[name][1:],
                apart.value,
                apart.interval_at(level),
                1.0 if name == best else _adjusted(apart.p, maxima),
                interquartile_interval(arms[name], seed=seed) if len(arms[name].seeds) >= MIN_SEEDS else None,
            )
        )
    contenders = tuple(row.name for row in standings if row.name == best or row.difference_interval[1] >= 0)
    return RankedArms(tuple(standings), contenders, tuple(_notes(arms)))


def largest_differences(arms: Sequence[Resampled], seed: int) -> np.ndarray:
    """Return the largest studentized difference of all pairs of arms in each draw, (resamples,)."""
    rng = np.random.default_rng(seed)
    draws = []
    for arm, variance in zip(arms, _seeds_variances(arms), strict=True):
        replicates = arm.resampled.mean(0)
        draws.append(replicates - replicates.mean() + np.sqrt(variance) * rng.standard_normal(len(replicates)))
    largest = np.zeros(arms[0].resampled.shape[1])
    for first, second in combinations(draws, 2):
        apart = np.abs(first - second)
        spread = np.sqrt((apart**2).mean())
        if spread > 0:
            largest = np.maximum(largest, apart / spread)
    return largest


def _seeds_variances(arms: Sequence[Resampled]) -> list[float]:
    """Return the variance due to the seeds of each arm alone: without what all arms share, if they are paired."""
    weight = 1 / len(arms)
    variances = []
    for arm in arms:
        parts = [(1.0, arm)]
        if len(arms) > 1 and common_seeds(arms):
            parts = [(float(other is arm) - weight, other) for other in arms]
        variances.append(sum(part.variance for part in contrast(parts).seeds) / (1 - weight if len(parts) > 1 else 1))
    return variances


def family_level(maxima: np.ndarray) -> float:
    """Return the level of each pair of arms at which the family-wise error over all pairs is 5 %.

    Args:
        maxima: the largest differences, (resamples,).
    """
    return min(LEVEL, 2 * (1 - NORMAL.cdf(float(np.quantile(maxima, 1 - LEVEL)))))


def _adjusted(p: float, maxima: np.ndarray) -> float:
    """Return the share of draws whose largest difference is as unlikely as a p-value; at least that p-value."""
    return max(p, float((maxima >= NORMAL.inv_cdf(1 - p / 2)).mean()))


def listed(names: Sequence[str]) -> str:
    """Return names of arms in one line; those of factors have commas."""
    return ("; " if any("," in name for name in names) else ", ").join(names)


def _notes(arms: Mapping[str, Resampled]) -> list[str]:
    """Return notes about arms with few or different seeds."""
    notes = []
    single = [name for name, arm in arms.items() if len(arm.seeds) == 1]
    if single:
        notes.append(f"{listed(single)}: 1 seed, so intervals are over examples only; other seeds may differ by more")
    most = max((arm.seeds for arm in arms.values()), key=len)
    fewer: dict[str, list[str]] = {}
    for name, arm in arms.items():
        shared = sum(seed in most for seed in arm.seeds)
        if set(arm.seeds) != set(most):
            compared = f"compared on the {counted(shared, 'seed')} of both" if shared else "not paired"
            note = f"{counted(len(arm.seeds), 'seed')}, others up to {len(most)}; {compared}"
            fewer.setdefault(note, []).append(name)
    return [*notes, *(f"{listed(names)}: {note}" for note, names in fewer.items())]


def arms_to_stop(arms: Mapping[str, Resampled], *, looks: int, starters: int) -> dict[str, str]:
    """Return the arms that stop at this look, each with the arm that is clearly better.

    Args:
        arms: the arms that are still running, resampled together, with the seeds so far.
        looks: number of looks that are planned in all: with one after each seed from the second, but not after the
            last, the number of seeds minus 2.
        starters: number of arms at the start.
    """
    if looks < 1 or starters < 2:
        return {}
    leader = max(arms, key=lambda name: arms[name].scores.mean())
    each = LEVEL / looks / (starters - 1)
    pooled, stopped = pooled_seeds(list(arms.values())), {}
    for name, arm in arms.items():
        if name != leader and len(common_seeds([arm, arms[leader]])) > 1:
            apart = difference(arm, arms[leader], pooled=pooled)
            if apart.center < 0 and apart.p / 2 <= each:
                stopped[name] = leader
    return stopped
