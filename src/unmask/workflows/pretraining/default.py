"""The recipe of `unmask pretrain` if none is named.

Input: the corpus, the machine, and the settings of the command line, among them the budget. Output: a recipe, and what
the user is told about it. From scratch it is the largest of `SIZES` that fits into memory and that the machine trains
on enough tokens, with the settings that depend on how long the run is and how often it reads the text; with a model to
continue from it is the recipe "adapt". Settings of the command line take precedence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unmask.data.corpus.corpus import Corpus
from unmask.data.tokenizers.train import PADDING
from unmask.families.modernbert import ModernBertSettings
from unmask.model.directory import read_settings
from unmask.recipes.recipe import Recipe, as_recipe, recipe_table
from unmask.support.errors import UserError
from unmask.support.messages import argument, setting
from unmask.support.settings import Overrides, convert, put
from unmask.training.calibration import RESERVED_BYTES
from unmask.training.machine import Machine
from unmask.training.optimizer_settings import MuonSettings
from unmask.training.precision import SMALL
from unmask.training.runs.display import duration
from unmask.workflows.pretraining.checks import recipe_like
from unmask.workflows.pretraining.search import cost, training_speed

ENOUGH = {
    "modernbert-tiny": 0.0,
    "modernbert-mini": 0.5,
    "modernbert-small": 2.0,
    "modernbert-medium": 2.0,
    "modernbert-base-hour": 2.0,
    "modernbert-large-hour": 2.0,
}
"""Tokens per parameter of its layers from which on each recipe is better than the next smaller one in the same time:
for tasks, or, where these do not tell, at predicting masked tokens (docs/results.md#which-size)."""
SIZES = tuple(ENOUGH)
"""The recipes to choose from, smallest first; the last two are for GPUs."""
WEIGHT_BYTES = 12
"""Bytes per parameter besides those that training reserves (`RESERVED_BYTES`): the weight and its gradient, in float32,
and both again in 16 bits."""
ACTIVATION_BYTES = 40
"""Bytes per token, layer and unit of the width that the smallest micro-batch keeps for the backward pass."""
PASSES = 16
"""How often a text is read at most; read so often, it needs a token per parameter of the layers of a recipe."""
REPEATS = 15.0
"""How soon reading a text again loses its worth: R* of Muennighoff et al. 2023."""
MATRIX_RATE = 0.77
"""Learning rate of Muon, times the width (Yang et al. 2022, table 3: that of other parameters depends on no width)."""
ADAPTING_RATE = 0.128
"""Learning rate that adapts a model, times its width, in steps of a few thousand tokens (docs/results.md#adaptation).

At a width of 768 it is 1.7e-4, near what is usual for published models.
"""
WEIGHT_DECAY = "optimizer.weight_decay"
DECAY, DECAY_FROM = 1.0, 8
"""Weight decay of a run that reads its text so many times or more: with that of the recipes an encoder learns the text
by heart, and gets worse at other text (docs/results.md#weight-decay; Kim et al. 2025, arXiv 2509.14786)."""
LITTLE_DECAY = 0.3
"""Weight decay that is too little then."""
STEP, STEP_AT = 4096, 8e6
"""Number of tokens of a step, and of the run that has such steps; they grow with the square root of the run."""
STEPS = (2048, 65_536)
"""Fewest and most tokens of a step."""


class RecordedRun(msgspec.Struct, frozen=True):
    """A run on English encyclopedic text and news (comparison "scaling" of `benchmarks/results/comparisons.json`).

    Attributes:
        recipe: its recipe.
        tokens: number of tokens read.
        accuracy: share of masked tokens of held-out text predicted correctly.
    """

    recipe: str
    tokens: float
    accuracy: float


class Recorded(msgspec.Struct, frozen=True):
    """The contents of recorded.json.

    Attributes:
        runs: pretraining from scratch.
        published, half_hour: F1 of entities in English news (CoNLL-2003), fine-tuned from a small published checkpoint,
            and from half an hour of pretraining (`token_classification.json` of the results, comparison "half_hour").
    """

    runs: list[RecordedRun]
    published: float
    half_hour: float


@cache
def recorded() -> Recorded:
    """Return what was measured."""
    content = resources.files("unmask.workflows.pretraining").joinpath("recorded.json").read_bytes()
    return msgspec.json.decode(content, type=Recorded)


def for_model(init: str | Path, settings: Overrides) -> Recipe:
    """Return the recipe that adapts a model: masked language modeling, or what bodies like it learn (`recipe_like`).

    Raises:
        UserError: there is no such model, or a setting is invalid.
    """
    shape = read_settings(init)
    table, name = recipe_table("adapt")
    if like := recipe_like(shape):
        own, _ = recipe_table(like)
        parts = ("encoder", "masking", "objective", *(("layout", "batch") if "streams" in own["layout"] else ()))
        table |= {part: own[part] for part in parts}
    defaults: dict[str, Any] = {
        "layout.length": min(shape.positions, table["layout"]["length"]),
        "optimizer.learning_rate": float(f"{ADAPTING_RATE / shape.width:.2g}"),
    }
    return convert(put(table, {**defaults, **settings}, Recipe), Recipe, name)


def limited(recipe: Recipe, text: float, settings: Overrides) -> Recipe:
    """Return a recipe in minutes that reads a text `PASSES` times at most, unless settings say how long to train.

    Args:
        recipe: what adapts a model.
        text: number of tokens of the text.
        settings: those of the command line.
    """
    if _is_budgeted(settings):
        return recipe
    return as_recipe(recipe, {"budget.tokens": PASSES * text, "budget.max_minutes": recipe.budget.minutes})


def choose(
    corpus: Corpus, machine: Machine, smallest: Recipe, settings: Overrides, processes: int = 1
) -> tuple[Recipe, list[str]]:
    """Return the best recipe for a corpus, and lines that say which it is and what to expect.

    Args:
        corpus: the text.
        machine: what the recipe is trained on.
        smallest: the first of `SIZES`, with these settings.
        settings: those of the command line.
        processes: number of processes that train, each as fast as this one.

    Raises:
        UserError: a setting is invalid.
    """
    speed, text = processes * training_speed(machine), corpus.train.num_tokens
    tokenizer = corpus.tokenizer
    words: dict[str, Any] = {"tokenizer.vocabulary": tokenizer.size, "tokenizer.lowercase": tokenizer.lowercase}
    if tokenizer.kind.name in PADDING:
        words["tokenizer.kind"] = tokenizer.kind.name
    most, memory = PASSES * text, machine.available_memory()
    for name in reversed(SIZES):
        try:
            recipe = as_recipe(smallest if name == SIZES[0] else name, {**words, **settings})
        except UserError:  # such as a width that is no multiple of the heads of this size
            if name == SIZES[0]:
                raise
            continue
        costs = cost(recipe)
        tokens = costs.num_tokens(speed)
        fits = not memory or needed_memory(costs.parameters, recipe) <= memory
        if fits and tokens >= ENOUGH[name] * costs.inner and most >= costs.inner:
            break
    if tokens > most and not _is_budgeted(settings):
        tokens, settings = most, {"budget.tokens": most, **settings}
    passes = rounded(tokens / text)
    ruled = rules(tokens, recipe.encoder.width, tokens / text)
    if recipe.optimizer.matrix_learning_rate is None:  # of another kind
        del ruled["optimizer.matrix_learning_rate"]
    recipe = as_recipe(recipe, {**ruled, **settings})
    size = f"{recipe.encoder.shape}, {costs.parameters / 1e6:.1f} million parameters"
    return recipe, [
        f"recipe: {name} ({size}), the best one for about {rounded(tokens)} tokens, {passes} times this text, "
        f"{duration(tokens * costs.flops / speed)}; for more or less time: {setting('budget.minutes', 'N')}",
        *([f"after {PASSES} times an encoder gets worse at other text: choose a smaller budget"] * (tokens > most)),
        *expectations(name, worth(tokens, text)),
    ]


def _is_budgeted(settings: Overrides) -> bool:
    """Return whether settings say how long to train."""
    return any(key.split(".")[0] == "budget" for key in settings)


def needed_memory(parameters: int, recipe: Recipe) -> int:
    """Return about how many bytes training takes at least, with the smallest micro-batches.

    Args:
        parameters: number of parameters of the encoder.
        recipe: what is trained.
    """
    activations = ACTIVATION_BYTES * SMALL * recipe.encoder.layers * recipe.encoder.width
    return (WEIGHT_BYTES + RESERVED_BYTES) * parameters + activations


def rules(tokens: float, width: int, passes: float) -> dict[str, Any]:
    """Return the settings that depend on the number of tokens of the run, the width, and how often the text is read."""
    power = round(math.log2(STEP * math.sqrt(tokens / STEP_AT)))
    return {
        "batch.tokens": min(max(2**power, STEPS[0]), STEPS[1]),
        "optimizer.matrix_learning_rate": float(f"{MATRIX_RATE / width:.2g}"),
        **decay(passes),
    }


def decay(passes: float) -> dict[str, float]:
    """Return the weight decay of a run that reads its text so many times, if it is not that of its recipe."""
    return {WEIGHT_DECAY: DECAY} if passes >= DECAY_FROM else {}


def num_passes(recipe: Recipe, text: float, vocabulary: int, speed: Callable[[], float]) -> float:
    """Return about how often a run reads its text.

    Args:
        recipe: what is trained.
        text: number of tokens of the text.
        vocabulary: number of token ids.
        speed: returns how fast the machine trains, in floating-point operations per second, for a budget in minutes.
    """
    return cost(recipe, vocabulary).num_tokens(speed() if recipe.budget.minutes else 0.0) / text


def describe_decay(recipe: Recipe, corpus: Corpus, machine: Machine, processes: int = 1) -> list[str]:
    """Return a note if a run reads its text so often that its encoder learns it by heart; [] otherwise.

    It is given to recipes like those that this was measured with: masked language models of ModernBERT's body, with
    Muon.

    Args:
        recipe: what is trained.
        corpus: the text.
        machine: what the recipe is trained on.
        processes: number of processes that train, each as fast as this one.
    """
    measured = isinstance(recipe.encoder, ModernBertSettings) and isinstance(recipe.optimizer, MuonSettings)
    if not measured or [*recipe.objectives] != ["masked_lm"] or recipe.optimizer.weight_decay >= LITTLE_DECAY:
        return []
    text, vocabulary = corpus.train.num_tokens, corpus.tokenizer.size
    passes = num_passes(recipe, text, vocabulary, lambda: processes * training_speed(machine))
    return [
        f"this text is read about {rounded(passes)} times, and with a weight decay of "
        f"{recipe.optimizer.weight_decay:g} an encoder learns it by heart, and gets worse at other text: "
        f"from {DECAY_FROM} times on, {setting(key, value)} is better"
        for key, value in decay(passes).items()
    ]


def worth(tokens: float, text: float) -> float:
    """Return how many new tokens a run that repeats its text is worth (Muennighoff et al. 2023, equation 5)."""
    repeats = max(0.0, tokens / text - 1)
    return min(tokens, text) + text * REPEATS * (1 - math.exp(-repeats / REPEATS))


def expectations(name: str, tokens: float) -> list[str]:
    """Return lines about how far a recipe comes with a number of tokens, and what else there is."""
    known = recorded()
    runs = sorted((run for run in known.runs if run.recipe == name), key=lambda run: run.tokens)
    lines = []
    if runs and tokens >= runs[0].tokens:  # beyond the longest run, that run is a lower bound
        share = np.interp(math.log(tokens), [math.log(run.tokens) for run in runs], [run.accuracy for run in runs])
        least = "at least " * (tokens > runs[-1].tokens)
        lines = [f"expected: {least}{share:.0%} of masked tokens predicted, as on English encyclopedic text and news"]
    return [
        *lines,
        "a published checkpoint that has read much more, adapted to this text with "
        f"{argument('init', 'DIRECTORY')}, is mostly better: "
        f"in entities of English news a small one has F1 {known.published:.0f}, half an hour from scratch "
        f"{known.half_hour:.0f}",
    ]


def rounded(number: float) -> str:
    """Return a number with two digits, such as 0.14, 3.9, 650 or 20 million."""
    if number >= 1e6:
        return f"{rounded(number / 1e6)} million"
    return f"{number:.2g}" if number < 100 else f"{float(f'{number:.2g}'):,.0f}"
