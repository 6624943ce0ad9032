"""The scores of finished cells, resampled together, and which arms a race stops."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unmask.metrics.comparison.decision import arms_to_stop
from unmask.metrics.comparison.multibootstrap import Resampled, average_tasks
from unmask.metrics.intervals import lowest
from unmask.support.errors import UserError
from unmask.support.fingerprint import fingerprint_values
from unmask.workflows.comparing.cells import (
    BITS,
    RESAMPLED,
    Cell,
    Plan,
    content_of,
    failure_of,
    folder_of,
    result_of,
    tested_on,
)


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
