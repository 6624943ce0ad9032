"""The scores of finished cells, resampled together, which arms a race stops, and what scores say beyond
the arms that were trained: effects of factors, more budget, more examples.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unmask.metrics.comparison.decision import arms_to_stop
from unmask.metrics.comparison.effects import main_effects
from unmask.metrics.comparison.multibootstrap import Resampled, average_tasks
from unmask.metrics.comparison.outlook import MIN_BUDGETS, extrapolate
from unmask.metrics.intervals import lowest
from unmask.support.errors import UserError
from unmask.support.fingerprint import fingerprint_values
from unmask.workflows.comparing.cells import (
    BITS,
    OUTLOOK,
    RESAMPLED,
    Cell,
    Plan,
    content_of,
    failure_of,
    folder_of,
    result_of,
    tested_on,
)
from unmask.workflows.comparing.design import combined, name_of
from unmask.workflows.comparing.outcome import Effect, Estimate, Prospect

TIMES, MORE_EXAMPLES = (4.0, 10.0), (2.0, 4.0)
"""Multiples of the budget of an outlook, and of the largest number of training examples."""


class Held(NamedTuple):
    """Keys of cells that are not computed: never, or not yet; and the arms that stopped, each with its better one."""

    stopped: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    losers: Mapping[str, str] = {}


class Scores:
    """The scores of the cells that are done, by arm, task and seed; without tasks minus the bits, of the task "".

    Args:
        plan: the cells.
        out: the directory of the comparison.
        share: of the budget.

    Attributes:
        plan, out: the same.
        results, folders: the results of the cells, and their folders.
    """

    def __init__(self, plan: Plan, out: Path, share: float = 1.0) -> None:
        self.plan, self.out = plan, out
        self.results: dict[tuple[str, str, int], dict[str, Any]] = {}
        self.folders: dict[tuple[str, str, int], Path] = {}
        for cell in plan.scored:
            if cell.share == share and (result := result_of(out, cell)) is not None:
                self.results[cell.arm, cell.task, cell.seed] = result
                self.folders[cell.arm, cell.task, cell.seed] = folder_of(out, cell)
        self.arms, self.tasks = list(plan.arms), list(plan.tasks) or [""]
        self.metrics = {name: data.metric for name, data in plan.tasks.items()}
        self.tested = {cell.task: fingerprint_values(tested_on(cell)) for cell in plan.of("score")}

    def seeds(self, arm: str, task: str) -> list[int]:
        """Return the first seeds that are done, without a gap."""
        seeds: list[int] = []
        while (arm, task, len(seeds)) in self.results:
            seeds.append(len(seeds))
        return seeds

    def of_task(self, arm: str, task: str, most: int | None = None) -> Resampled | None:
        """Return the scores of an arm at a task, of at most so many seeds; None if there are none."""
        seeds = self.seeds(arm, task)[:most]
        if not seeds:
            return None
        results = [self.results[arm, task, seed] for seed in seeds]
        metric = self.metric(task, results[0])
        drawn = np.stack([self._resampled(arm, task, seed) for seed in seeds])
        scores = np.array([result["metrics"][metric] for result in results])
        sign = -1 if metric == BITS else 1  # more is better
        return Resampled(
            tuple(seeds), sign * scores, sign * drawn.astype(float), results[0]["independent"], lowest(metric)
        )

    def metric(self, task: str, result: Mapping[str, Any]) -> str:
        """Return the metric that decides a task, given a result.

        Raises:
            UserError: the task does not have it.
        """
        metric: str = self.metrics.get(task, "") or result["metric"]
        if metric not in result["deciding"]:
            raise UserError(
                f"task '{task}': no metric '{metric}' to decide by",
                remedy=f"choose one of {', '.join(result['deciding'])}; what is finished is not computed again",
            )
        return metric

    def _resampled(self, arm: str, task: str, seed: int) -> np.ndarray:
        result = self.results[arm, task, seed]
        content = content_of(self.folders[arm, task, seed], RESAMPLED, result)
        values: np.ndarray = np.load(io.BytesIO(content))[result["deciding"].index(self.metric(task, result))]
        return values

    def overall(self, most: int | None = None) -> dict[str, Resampled]:
        """Return the mean over all tasks of each arm that has scores of all of them, of the seeds that all have."""
        overall: dict[str, Resampled] = {}
        for arm in self.arms:
            seeds = min(len(self.seeds(arm, task)) for task in self.tasks)
            parts = [self.of_task(arm, task, seeds if most is None else min(seeds, most)) for task in self.tasks]
            if seeds:
                tested = [self.tested.get(task, "") for task in self.tasks]
                overall |= average_tasks([{arm: part} for part in parts if part is not None], tested)
        return overall


def race(plan: Plan, out: Path) -> Held:
    """Return the cells of arms that are clearly worse, and those that wait until this can be told.

    What stops after a seed depends on the results of the seeds up to it alone, in whatever order cells finish. An arm
    without a result of one of them, as it failed, stops none.
    """
    scores, seeds = Scores(plan, out), plan.comparison.seeds
    losers: dict[str, str] = {}
    for done in range(2, seeds):  # looks before the third seed, the fourth, …
        active = [cell for cell in plan.scored if cell.arm not in losers and cell.share == 1]
        if any(result_of(out, cell) is None and failure_of(out, cell) is None for cell in active if cell.seed < done):
            return Held(_beyond(plan, losers, 2), _beyond(plan, set(plan.arms), done), losers)
        overall = {
            arm: scored
            for arm, scored in scores.overall(done).items()
            if arm not in losers and len(scored.seeds) == done
        }
        if len(overall) > 1:
            losers |= arms_to_stop(overall, looks=seeds - 2, starters=len(plan.arms))
    return Held(_beyond(plan, losers, 2), frozenset(), losers)


def _beyond(plan: Plan, arms: Collection[str], seed: int) -> frozenset[str]:
    """Return the keys of the cells of arms from a seed on, but for those that other arms need, too."""
    needed, scored = set[str](), list(plan.scored)

    def add(cell: Cell) -> None:
        needed.add(cell.key)
        for other in cell.needs.values():
            add(other)

    for cell in plan.cells:
        if cell.seed < seed or (cell.arm not in arms and cell in scored):
            add(cell)
    return frozenset(cell.key for cell in plan.cells if cell.key not in needed)


def effects(plan: Plan, overall: Mapping[str, Resampled], notes: list[str]) -> list[Effect]:
    """Return the effects of the factors, by the arms that have scores.

    `notes` receives which arms have none, and whether the others tell nothing.
    """
    factors = plan.comparison.vary
    values = combined(factors, plan.comparison.design) if factors else {}
    names: dict[tuple[Hashable, ...], str] = {each: name_of(factors, each) for each in values}
    if not names or not overall:
        return []
    if missing := [name for name in names.values() if name not in overall]:
        notes.append(f"What each choice changes is told without {'; '.join(missing)}, whose scores are not complete")
    try:
        changes = main_effects(factors, {each: overall[name] for each, name in names.items() if name in overall})
    except UserError as error:
        notes.append(f"What each choice changes cannot be told: {error.message}")
        return []
    sign = 1 if plan.tasks else -1
    return [Effect(e.factor, str(e.level), str(e.baseline), signed(sign, e.value, *e.interval)) for e in changes]


def signed(sign: int, mean: float, low: float, high: float) -> Estimate:
    """Return an estimate, or with the sign -1 its negative."""
    return Estimate(mean, low, high) if sign > 0 else Estimate(-mean, -high, -low)


def prospects(scores: Scores, notes: list[str]) -> list[Prospect]:
    """Return where arms that are trained on text would stand with more budget, if they were trained with less, too.

    `notes` receives of which arms nothing can be extrapolated.
    """
    plan = scores.plan
    if not plan.comparison.outlook:
        return []
    by_share = {share: Scores(plan, scores.out, share).overall() for share in OUTLOOK} | {1.0: scores.overall()}
    expected: list[Prospect] = []
    for name in (name for name, arm in plan.arms.items() if arm.trains):
        scored = {share: overall[name] for share, overall in by_share.items() if name in overall}
        points = [(share, float(score)) for share, arm in scored.items() for score in arm.scores]
        if len({share for share, _ in points}) <= len(OUTLOOK):
            continue
        shares, values = zip(*points, strict=True)
        expected += _extrapolated(name, shares, values, TIMES, by_share[1.0][name].lowest, notes)
    return expected


def _extrapolated(
    arm: str,
    sizes: Sequence[float],
    values: Sequence[float],
    times: Sequence[float],
    low: float | None,
    notes: list[str],
    task: str = "",
) -> list[Prospect]:
    """Return where an arm would stand with multiples of the largest size, given its scores by size.

    Nothing where scores get worse with the size: `notes` then receives why.

    Args:
        arm, task: see `Prospect`.
        sizes, values: (runs,) each; scores without a range are minus bits per character.
        times: the multiples.
        low: lower end of the scores' range; None: they have none.
        notes: see above.
    """
    bounds = (min(values), 0.0) if low is None else (low, 100.0)
    targets = [each * max(sizes) for each in times]
    try:
        outlook, sign = extrapolate(sizes, values, targets, bounds=bounds), -1 if low is None else 1
    except UserError as error:
        notes.append(f"{f'{task}: ' if task else ''}nothing can be extrapolated for {arm}: {error.message}")
        return []
    ends = zip(times, outlook.scores.tolist(), outlook.low.tolist(), outlook.high.tolist(), strict=True)
    return [Prospect(arm, each, signed(sign, *estimate), task) for each, *estimate in ends]


def by_examples(plan: Plan) -> dict[str, list[str]]:
    """Return the names of tasks that differ in the number of examples alone, fewest first, by their common name."""
    return {
        name: [f"{name}-{number}" for number in sorted(data.examples)]
        for name, data in plan.comparison.tasks.items()
        if len(data.examples) > 1
    }


def more_examples(scores: Scores, notes: list[str]) -> list[Prospect]:
    """Return what arms would score with more training examples, if they learned from several numbers of them.

    `notes` receives of which arms nothing can be extrapolated.
    """
    plan, expected = scores.plan, list[Prospect]()
    for name, tasks in by_examples(plan).items():
        for arm in plan.arms if len(tasks) >= MIN_BUDGETS else ():
            scored = [(plan.tasks[task].limit or 0, scores.of_task(arm, task)) for task in tasks]
            points = [(size, float(value)) for size, part in scored if part for value in part.scores]
            if len({size for size, _ in points}) == len(tasks):
                low = next(part.lowest for _, part in scored if part)
                sizes, values = zip(*points, strict=True)
                expected += _extrapolated(arm, sizes, values, MORE_EXAMPLES, low, notes, name)
    return expected
