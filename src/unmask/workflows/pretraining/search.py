"""A small search for the learning rate before a run, and the estimate of what a recipe costs.

Input: a recipe and a corpus. Output: the recipe with the multiple of its learning rates that is best by the held-out
losses of a few short runs (`_vertex`), and with what remains of its budget. The short runs have the whole schedule, and
together take an eighth of the budget. They are kept in RUN/search, with rates.json; an interrupted search is continued.

The shorter a run, the higher its best rate: a short run is therefore made with the multiple times a further factor, so
that it is as much too high or too low for the short run as the multiple is for the rest of the budget (`HORIZON`).

The cost is estimated without training, from how many operations per second the machine computes: parameters,
operations, time. The operations are those that a run counts (objectives/flops.py), for one sequence of the recipe's
length.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import torch
from torch import Tensor

from unmask.data.batches.batch import Sample, collate
from unmask.data.batches.tokens import Reading
from unmask.data.tokenizers.words import spell
from unmask.families.checkpoints.check import on_meta
from unmask.nn.encoders.encoder import CHARACTERS, TWO_LMS
from unmask.objectives.flops import forward_flops
from unmask.objectives.learner import Learner
from unmask.recipes.recipe import Recipe
from unmask.support import __version__
from unmask.support.durable import read_json, replace_file
from unmask.support.errors import UserError
from unmask.support.messages import argument
from unmask.support.settings import write
from unmask.training.evaluate import NotFiniteError
from unmask.training.machine import Machine
from unmask.training.runs.directory import CHECKPOINTS, MARK, SEARCHED, RunDirectory
from unmask.training.settings import FORWARDS_PER_STEP, BudgetSettings
from unmask.workflows.pretraining.restarts import started
from unmask.workflows.pretraining.start import build_learner

SHARE = 0.35
"""Share of the machine's peak that training reaches: 0.2 to 0.5, the more the wider the encoder."""


def training_speed(machine: Machine) -> float:
    """Measure how fast a machine trains, in floating-point operations per second."""
    return SHARE * machine.matmul_peak()


@dataclass(frozen=True)
class Cost:
    """Attributes of a recipe that determine what it costs.

    Attributes:
        parameters: number of parameters of the encoder, without the heads.
        inner: number of parameters of its layers.
        flops: floating-point operations of a training step per token.
        tokens: number of tokens of the budget; None: it is given in minutes.
        minutes: length of the budget; None: it is given in tokens or steps.
    """

    parameters: int
    inner: int
    flops: float
    tokens: float | None
    minutes: float | None

    def num_tokens(self, flops_per_second: float) -> float:
        """Return the number of tokens that are read within the budget."""
        return 60 * (self.minutes or 0.0) * flops_per_second / self.flops if self.tokens is None else self.tokens

    def seconds(self, flops_per_second: float) -> float:
        """Return the time that the budget takes."""
        return 60 * self.minutes if self.minutes is not None else (self.tokens or 0.0) * self.flops / flops_per_second


def cost(recipe: Recipe, vocabulary: int | None = None) -> Cost:
    """Return what a recipe costs; with stages, the mean over the tokens of all of them.

    Args:
        recipe: the recipe.
        vocabulary: number of token ids; None: that of the recipe's tokenizer.
    """
    vocabulary = recipe.tokenizer.vocabulary if vocabulary is None else vocabulary
    steps = [stage.batch.tokens or (stage.batch.sequences or 0) * stage.layout.length for stage in recipe.every_stage]
    sizes = [share * step for share, step in zip(recipe.shares, steps, strict=True)]  # tokens per step of the run
    learners = [_built(stage, vocabulary) for stage in recipe.every_stage]
    flops = [_step_flops(stage, learner) for stage, learner in zip(recipe.every_stage, learners, strict=True)]
    budget, encoder = recipe.budget, learners[-1].encoder
    layers = (value for group in encoder.layer_groups[1:] for value in group.parameters())
    return Cost(
        sum(value.numel() for value in encoder.parameters()),
        sum(value.numel() for value in layers),
        sum(size * each for size, each in zip(sizes, flops, strict=True)) / sum(sizes),
        budget.steps * sum(sizes) if budget.steps is not None else budget.tokens,
        budget.minutes,
    )


def _built(recipe: Recipe, vocabulary: int) -> Learner:
    """Return the learner of a recipe, without memory for its weights."""
    with on_meta():
        return build_learner(recipe, vocabulary, None)[0]


def _step_flops(recipe: Recipe, learner: Learner) -> float:
    """Return the floating-point operations of a training step per token, for a sequence of the recipe's length."""
    length = recipe.layout.length
    ids = np.arange(length)
    if CHARACTERS in recipe.encoder.provides:  # as if no word occurred twice
        ids = np.stack([spell(f"word{id}".encode()) for id in ids])
    reading = Reading(backward=True if TWO_LMS in recipe.encoder.provides else None)
    batch = collate([Sample(key=(0,), ids=ids, segments=np.zeros(length, np.int64), reading=reading)])
    positions = _Positions({"every": torch.arange(length), "summary": torch.zeros(1, dtype=torch.int64)})
    positions.others = torch.arange(max(1, round(length * recipe.masking.rate_at(0.5))))
    counts = dict.fromkeys(learner.weights, 1)
    flops = forward_flops(learner, replace(batch, positions=positions, counts=counts))
    return FORWARDS_PER_STEP * flops / length


class _Positions(dict[str, Tensor]):
    """Positions of a sequence by name; names that are not known are those of masked tokens."""

    others: Tensor

    def __missing__(self, name: str) -> Tensor:
        return self.others


FACTORS = (0.5, 1.0, 2.0)
"""Multiples of the learning rates that are tried."""
SEARCH_SHARE = 1 / 8
"""Share of the budget that the search takes."""
HORIZON = 1 / 3
"""The best learning rate is inversely proportional to the number of tokens to this power: 0.32 in Bjorck et al. 2025,
"Scaling Optimal LR Across Token Horizons", with which 5 million tokens agree here, beside a 24th of them."""
SHORTER = ((1 - SEARCH_SHARE) * len(FACTORS) / SEARCH_SHARE) ** HORIZON
"""Factor of the rates of a short run, so that its best multiple is that of the rest of the budget."""
RATES = "rates.json"
"""The held-out loss by multiple, in RUN/search."""

Train = Callable[[Recipe, Path, bool], object]
"""Trains a recipe in a run directory, or, if the last argument is true, resumes the run there."""


def search_rate(
    recipe: Recipe,
    out: Path,
    train: Train,
    report: Callable[[str], None],
    inputs: Mapping[str, str | None] | None = None,
) -> Recipe:
    """Return the recipe with the learning rates that are best, and the rest of the budget.

    Args:
        recipe: what is trained.
        out: directory of the run, which has not started; or of a run that was started after such a search.
        train: trains a short run.
        report: called with one-line messages.
        inputs: fingerprints of what losses depend on besides the recipe; results of a search with others are removed.

    Raises:
        UserError: a directory is not empty, there is no held-out text, or the short runs are less than a step.
        NotFiniteError: training diverges with all of them.
    """
    check_trials(recipe)
    folder = out / SEARCHED
    RunDirectory.forget_unstarted(out)
    if not (out / "recipe.toml").exists():
        RunDirectory.check_empty(out)
        _begin(folder, msgspec.json.encode({"recipe": write(recipe), "unmask": __version__, **(inputs or {})}))
    losses = _read(folder)
    for factor in FACTORS:
        if factor in losses:
            continue
        run = folder / f"x{factor:g}"
        trial = _scaled(with_rates(recipe, factor * SHORTER), SEARCH_SHARE / len(FACTORS))
        rate = factor * recipe.optimizer.learning_rate
        report(f"trying {factor:g} times the learning rate, {rate:g}: {trial.optimizer.learning_rate:g} in a short run")
        loss = None
        with suppress(NotFiniteError):
            train(trial, run, started(run))
            heldout = RunDirectory(run).read_metrics("heldout")
            check_heldout(len(heldout))
            loss = heldout[-1]["loss"]
        losses[factor] = math.nan if loss is None else loss  # None: not finite
        replace_file(folder / RATES, msgspec.json.encode({f"{key:g}": value for key, value in losses.items()}))
        shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)
    finite = [factor for factor in FACTORS if math.isfinite(losses[factor])]
    if not finite:
        raise NotFiniteError(
            "training diverges with every learning rate that was tried, from "
            f"{FACTORS[0] * SHORTER * recipe.optimizer.learning_rate:g} on: lower optimizer.learning_rate"
        )
    best = _vertex({factor: losses[factor] for factor in finite})
    listed = ", ".join(f"{losses[factor]:.3f} at {factor:g}" for factor in FACTORS)
    report(f"held-out loss by multiple of the learning rate: {listed}; chosen: {best:g}")
    return _scaled(with_rates(recipe, best), 1 - SEARCH_SHARE)


def _vertex(losses: Mapping[float, float]) -> float:
    """Return the multiple at which the loss is least, if it is a parabola over the logarithm of the learning rate.

    It is not beyond those that were tried. Of fewer than three losses, or of losses without a minimum between them, it
    is the multiple with the least.
    """
    tried = sorted(losses)
    if len(tried) > 2:
        curvature, slope, _ = np.polyfit(np.log2(tried), [losses[factor] for factor in tried], 2)
        if curvature > 1e-6:  # neither flat nor a hill
            return float(f"{np.clip(2 ** (-slope / (2 * curvature)), tried[0], tried[-1]):.3g}")
    return min(tried, key=lambda factor: losses[factor])


def check_heldout(found: int) -> None:
    """Raise an error if there is no held-out text, or nothing was scored on it as it is too short."""
    if not found:
        raise UserError("there is no held-out text to compare learning rates by", remedy=f"omit {argument('search')}")


def check_trials(recipe: Recipe) -> None:
    """Raise an error if the short runs of a search were less than a step, unless the budget is in minutes."""
    parts, budget = round(len(FACTORS) / SEARCH_SHARE), recipe.budget
    tokens = recipe.batch.tokens
    steps = budget.tokens / tokens if budget.tokens and tokens else budget.steps
    if steps and steps < parts:
        raise UserError(
            f"each of the {len(FACTORS)} short runs of a search for the learning rate takes a {parts}th of the budget, "
            f"which is {math.floor(steps)} steps",
            remedy=f"choose a budget of {parts} steps or more, or omit {argument('search')}",
        )


def with_rates(recipe: Recipe, factor: float) -> Recipe:
    """Return a recipe with a multiple of its learning rates."""
    optimizer = recipe.optimizer
    matrix = None if optimizer.matrix_learning_rate is None else factor * optimizer.matrix_learning_rate
    changed = msgspec.structs.replace(
        optimizer, learning_rate=factor * optimizer.learning_rate, matrix_learning_rate=matrix
    )
    return msgspec.structs.replace(recipe, optimizer=changed)


def _begin(folder: Path, mark: bytes) -> None:
    """Create the folder of a search, without the results of another search."""
    if (folder / MARK).exists() and (folder / MARK).read_bytes() != mark:
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / MARK, mark)


def _read(folder: Path) -> dict[float, float]:
    """Return the losses found so far, by multiple."""
    path = folder / RATES
    losses = read_json(path, dict[str, float | None], f"remove {folder}") if path.exists() else {}
    return {float(key): math.nan if value is None else value for key, value in losses.items()}


def _scaled(recipe: Recipe, share: float) -> Recipe:
    """Return a recipe with a share of its budget."""
    budget = recipe.budget
    steps = None if budget.steps is None else max(1, round(share * budget.steps))
    tokens = None if budget.tokens is None else share * budget.tokens
    minutes, limit = (None if each is None else share * each for each in (budget.minutes, budget.max_minutes))
    scaled = BudgetSettings(steps=steps, tokens=tokens, minutes=minutes, max_minutes=limit)
    return msgspec.structs.replace(recipe, budget=scaled)
