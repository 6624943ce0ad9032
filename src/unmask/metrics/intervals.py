"""Confidence intervals of metrics and significance of differences between models: the bootstrap over examples.

A metric of a data set is anything that can be computed from any selection of its examples (a `Measure`), so that the
same resampling works for accuracies, correlations and entity scores. Examples that depend on each other, such as the
questions of a dialogue, are resampled together.

Efron and Tibshirani 1993, chapter 13 (percentile intervals); Koehn 2004 (two systems on the same resampled examples).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

Measure = Callable[[np.ndarray], dict[str, float]]
"""Function from indices of examples, which may repeat, to metrics."""

RESAMPLES = 2000


def measure_all(measure: Measure, number: int) -> dict[str, float]:
    """Return the metrics of all `number` examples."""
    return measure(np.arange(number))


def intervals(
    measure: Measure, number: int, *, seed: int = 0, groups: Sequence[Hashable] | None = None
) -> dict[str, list[float]]:
    """Return the 95 % confidence interval of each metric, [low, high].

    Args:
        measure: the metrics.
        number: number of examples.
        seed: seed of the resampling.
        groups: the group of each example: groups are resampled as wholes. None: each example is one.
    """
    drawn = _resampled([measure], number, seed, groups)[0]
    return {name: [float(x) for x in np.percentile(values, [2.5, 97.5])] for name, values in drawn.items()}


def differences(
    first: Measure, second: Measure, number: int, *, seed: int = 0, groups: Sequence[Hashable] | None = None
) -> dict[str, dict[str, object]]:
    """Compare two models on the same `number` examples, metric by metric; see `intervals`.

    Returns:
        For each metric, `difference` (first minus second), `interval` (95 %, [low, high]) and `p`: twice the smaller
        of the shares of resamples in which the difference is at most 0 and at least 0; from 1 / `RESAMPLES` to 1.
    """
    first_drawn, second_drawn = _resampled([first, second], number, seed, groups)
    first_all, second_all = measure_all(first, number), measure_all(second, number)
    differences: dict[str, dict[str, object]] = {}
    for name in first_all:
        drawn = first_drawn[name] - second_drawn[name]
        low, high = np.percentile(drawn, [2.5, 97.5])
        p = 2 * min((drawn <= 0).mean(), (drawn >= 0).mean())
        differences[name] = {
            "difference": first_all[name] - second_all[name],
            "interval": [float(low), float(high)],
            "p": float(min(1.0, max(p, 1 / RESAMPLES))),
        }
    return differences


def _resampled(
    measures: list[Measure], number: int, seed: int, groups: Sequence[Hashable] | None
) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    members: dict[Hashable, list[int]] = {}
    for example, group in enumerate(groups or ()):
        members.setdefault(group, []).append(example)
    whole = [np.array(indices) for indices in members.values()]
    drawn: list[list[dict[str, float]]] = [[] for _ in measures]
    for _ in range(RESAMPLES):
        chosen = rng.integers(len(whole) or number, size=len(whole) or number)
        chosen = np.concatenate([whole[index] for index in chosen]) if whole else chosen
        for results, measure in zip(drawn, measures, strict=True):
            results.append(measure(chosen))
    return [{name: np.array([row[name] for row in results]) for name in results[0]} for results in drawn]
