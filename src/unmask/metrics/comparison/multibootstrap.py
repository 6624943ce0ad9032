"""The multi-bootstrap: scores of several arms, each trained with several seeds, on the same resamples of the examples.

An arm is a way to a model, such as a recipe or a checkpoint. All arms and seeds are scored on the same resamples
(`intervals.resampled`), so that they are paired over examples. `Resampled` holds these scores; `estimates` combines
them with how far seeds differ. `resample_runs` draws seeds, too, as in the paper.

Sellam et al. 2022, "The MultiBERTs", section 4 and appendix A; their reference code is multibootstrap.py
(google-research/language). It resamples the few seeds as well and takes percentiles, whose intervals are too narrow for
3 to 5 seeds; see `estimates`. Interquartile means are those of Agarwal et al. 2021, "Deep Reinforcement Learning at the
Edge of the Statistical Precipice", section 4.3.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unmask.support.errors import UserError

MIN_SEEDS = 8
"""Number of seeds from which interquartile means are given: of fewer, four or less remain."""


@dataclass(frozen=True)
class Resampled:
    """Scores of the models of an arm, on all examples and on resamples.

    Attributes:
        seeds: the seed of each model. Where arms have the same seed, they have the same order of examples and, if they
            have the same shape, the same initial weights.
        scores: (seeds,), more is better.
        resampled: (seeds, resamples); the resamples are the same for all seeds and arms.
        examples: number of examples, or of groups of them, that were resampled.
        lowest: lower end of the metric's range, whose upper end is 100; None: the metric has no range.
    """

    seeds: tuple[int, ...]
    scores: np.ndarray
    resampled: np.ndarray
    examples: int
    lowest: float | None = 0.0

    def of_seeds(self, seeds: Sequence[int]) -> Resampled:
        """Return the same with some of the seeds, in the given order."""
        rows = [self.seeds.index(seed) for seed in seeds]
        return Resampled(tuple(seeds), self.scores[rows], self.resampled[rows], self.examples, self.lowest)


def average_tasks(
    tasks: Sequence[Mapping[str, Resampled]], tested: Sequence[Hashable] | None = None
) -> dict[str, Resampled]:
    """Return the plain mean of each arm's scores over tasks, each in percent of its own metric.

    Seeds are shared by the tasks. Tasks count the same, however many examples they have.

    Args:
        tasks: for each task the same arms with the same seeds, and as many resamples.
        tested: on what each task is tested. Those of equal ones share their resamples, such as a task with several
            numbers of training examples: what is difficult in one is so in all of them. None: all are independent.

    Raises:
        UserError: an arm is missing in a task, or has other seeds there.
    """
    tested = range(len(tasks)) if tested is None else tested
    shifts = {each: shift for shift, each in enumerate(dict.fromkeys(tested))}
    averages = {}
    for name in dict.fromkeys(name for task in tasks for name in task):
        arms = [task[name] for task in tasks if name in task]
        if len(arms) < len(tasks) or len({arm.seeds for arm in arms}) > 1:
            raise UserError(f"{name}: not all tasks have the same seeds", remedy="train each arm on all tasks")
        # shifted, so that other test sets of as many examples do not share resamples
        drawn = [np.roll(arm.resampled, shifts[each], axis=1) for each, arm in zip(tested, arms, strict=True)]
        ends = [arm.lowest for arm in arms if arm.lowest is not None]
        averages[name] = Resampled(
            arms[0].seeds,
            np.mean([arm.scores for arm in arms], 0),
            np.mean(drawn, 0),
            min(arm.examples for arm in arms),
            float(np.mean(ends)) if len(ends) == len(arms) else None,
        )
    return averages


def resample_runs(arm: Resampled, *, seed: int = 0) -> np.ndarray:
    """Return scores of resampled seeds on resampled examples, (resamples, seeds).

    Their means over seeds are the samples of Sellam et al.; arms with as many seeds are paired for the same `seed`.
    """
    seeds, resamples = arm.resampled.shape
    chosen = np.random.default_rng(seed).integers(seeds, size=(resamples, seeds))
    return arm.resampled[chosen, np.arange(resamples)[:, None]]


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half of the last axis: a quarter, rounded down, is left out at either end."""
    number = scores.shape[-1]
    return np.sort(scores, -1)[..., number // 4 : number - number // 4].mean(-1)


def interquartile_interval(arm: Resampled, *, seed: int = 0) -> tuple[float, float, float]:
    """Return the interquartile mean of an arm over its seeds, and the ends of its 95 % interval (percentiles).

    Raises:
        UserError: there are fewer than `MIN_SEEDS` seeds.
    """
    if len(arm.seeds) < MIN_SEEDS:
        raise UserError(f"{len(arm.seeds)} seeds have no interquartile mean", remedy=f"train with {MIN_SEEDS} or more")
    low, high = np.percentile(interquartile_mean(resample_runs(arm, seed=seed)), [2.5, 97.5])
    return float(interquartile_mean(arm.scores)), float(low), float(high)
