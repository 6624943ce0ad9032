"""The scores of finished cells, resampled together, and which arms a race stops."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from unmask.metrics.comparison.multibootstrap import Resampled, average_tasks
from unmask.metrics.comparison.racing import arms_to_stop
from unmask.metrics.intervals import lowest
from unmask.workflows.comparing.cells import RESAMPLED, Plan, failure_of, folder_of, result_of


class Scores:
    """The scores of the cells that are done, by arm, task and seed.

    Args:
        plan: the cells.
        out: the directory of the comparison.
        share: of the budget.
    """

    def __init__(self, plan: Plan, out: Path, share: float = 1.0) -> None:
        self.results: dict[tuple[str, str, int], dict[str, Any]] = {}
        self.folders: dict[tuple[str, str, int], Path] = {}
        for cell in plan.of("score"):
            if cell.share == share and (result := result_of(out, cell)) is not None:
                self.results[cell.arm, cell.task, cell.seed] = result
                self.folders[cell.arm, cell.task, cell.seed] = folder_of(out, cell)
        self.arms, self.tasks = list(plan.arms), list(plan.comparison.tasks)

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
        metric = results[0]["metric"]
        drawn = np.stack([np.load(self.folders[arm, task, seed] / RESAMPLED) for seed in seeds])
        scores = np.array([result["metrics"][metric] for result in results])
        return Resampled(tuple(seeds), scores, drawn.astype(float), results[0]["independent"], lowest(metric))

    def overall(self, most: int | None = None) -> dict[str, Resampled]:
        """Return the mean over all tasks of each arm that has scores of all of them, of the seeds that all have."""
        overall: dict[str, Resampled] = {}
        for arm in self.arms:
            seeds = min(len(self.seeds(arm, task)) for task in self.tasks)
            parts = [self.of_task(arm, task, seeds if most is None else min(seeds, most)) for task in self.tasks]
            if seeds:
                overall |= average_tasks([{arm: part} for part in parts if part is not None])
        return overall


def stopped_by_race(plan: Plan, out: Path) -> Collection[str] | None:
    """Return the keys of the cells of arms that are clearly worse; None while a seed is not complete for all others.

    What is stopped after a seed depends on the results of the seeds up to it alone, in whatever order cells finish.
    """
    scores, last = Scores(plan, out), plan.comparison.seeds - 1
    stopped: set[str] = set()
    for seeds in range(1, last + 1):
        active = (cell for cell in plan.of("score") if cell.arm not in stopped)
        needed = [cell for cell in active if cell.seed < seeds and cell.share == 1]
        if any(result_of(out, cell) is None and failure_of(out, cell) is None for cell in needed):
            return None
        overall = {arm: scored for arm, scored in scores.overall(seeds).items() if arm not in stopped}
        if 2 <= seeds < plan.comparison.seeds and len(overall) > 1:
            stopped |= arms_to_stop(overall, looks=last - 1, starters=len(plan.arms)).keys()
    return {cell.key for cell in plan.cells if cell.arm in stopped and cell.seed >= 2}
