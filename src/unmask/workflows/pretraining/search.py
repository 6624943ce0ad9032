"""A small search for the learning rate before a run (`unmask pretrain --search`).

Input: a recipe and a corpus. Output: the recipe with the best of a few multiples of its learning rates, by the held-out
loss of a short run with each, and with what remains of its budget. The short runs have the whole schedule, and together
take an eighth of the budget. They are kept in RUN/search, with rates.json; an interrupted search is continued.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from unmask.recipes.recipe import Recipe
from unmask.support.durable import replace_file
from unmask.support.errors import UserError
from unmask.support.settings import write
from unmask.training.runs.directory import MARK, SEARCHED, RunDirectory
from unmask.training.settings import BudgetSettings

FACTORS = (0.5, 1.0, 2.0)
"""Multiples of the learning rates that are tried."""
SHARE = 1 / 8
"""Share of the budget that the search takes."""
RATES = "rates.json"
"""The held-out loss by multiple, in RUN/search."""

Train = Callable[[Recipe, Path, bool], object]
"""Trains a recipe in a run directory, or, if the last argument is true, resumes the run there."""


def search_rate(recipe: Recipe, out: Path, train: Train, report: Callable[[str], None]) -> Recipe:
    """Return the recipe with the learning rates that were best, and the rest of the budget.

    Args:
        recipe: what is trained.
        out: directory of the run, which has not started; or of a run that was started after such a search.
        train: trains a short run.
        report: called with one-line messages.

    Raises:
        UserError: a directory is not empty, or there is no held-out text.
    """
    folder = out / SEARCHED
    if not (out / "recipe.toml").exists():
        RunDirectory.check_empty(out)
        _begin(folder, write(recipe).encode())
    losses = _read(folder)
    for factor in FACTORS:
        if factor in losses:
            continue
        run = folder / f"x{factor:g}"
        trial = _scaled(with_rates(recipe, factor), SHARE / len(FACTORS))
        report(f"trying {factor:g} times the learning rate, {trial.optimizer.learning_rate:g}")
        resume = any((run / "checkpoints").glob("step-*"))
        if not resume:
            RunDirectory.forget_unstarted(run)
        train(trial, run, resume)
        heldout = RunDirectory(run).read_metrics("heldout")
        if not heldout:
            raise UserError("there is no held-out text to compare learning rates by", remedy="omit --search")
        loss = heldout[-1]["loss"]
        losses[factor] = math.nan if loss is None else loss  # None: not finite
        replace_file(folder / RATES, msgspec.json.encode({f"{key:g}": value for key, value in losses.items()}))
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
    best = min(losses, key=lambda factor: losses[factor] if math.isfinite(losses[factor]) else math.inf)
    found = ", ".join(f"{losses[factor]:.3f} at {factor:g}" for factor in FACTORS)
    report(f"held-out loss by multiple of the learning rate: {found}; chosen: {best:g}")
    return _scaled(with_rates(recipe, best), 1 - SHARE)


def with_rates(recipe: Recipe, factor: float) -> Recipe:
    """Return a recipe with a multiple of its learning rates."""
    optimizer = recipe.optimizer
    matrix = None if optimizer.matrix_learning_rate is None else factor * optimizer.matrix_learning_rate
    changed = msgspec.structs.replace(
        optimizer, learning_rate=factor * optimizer.learning_rate, matrix_learning_rate=matrix
    )
    return msgspec.structs.replace(recipe, optimizer=changed)


def _begin(folder: Path, mark: bytes) -> None:
    """Create the folder of a search, without the results of a search for another recipe."""
    if (folder / MARK).exists() and (folder / MARK).read_bytes() != mark:
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / MARK, mark)


def _read(folder: Path) -> dict[float, float]:
    """Return the losses found so far, by multiple."""
    path = folder / RATES
    found: Mapping[str, float | None] = msgspec.json.decode(path.read_bytes()) if path.exists() else {}
    return {float(key): math.nan if value is None else value for key, value in found.items()}


def _scaled(recipe: Recipe, share: float) -> Recipe:
    """Return a recipe with a share of its budget."""
    budget = recipe.budget
    steps = None if budget.steps is None else max(1, round(share * budget.steps))
    tokens = None if budget.tokens is None else share * budget.tokens
    minutes = None if budget.minutes is None else share * budget.minutes
    return msgspec.structs.replace(recipe, budget=BudgetSettings(steps=steps, tokens=tokens, minutes=minutes))
