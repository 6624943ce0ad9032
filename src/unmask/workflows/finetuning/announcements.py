"""What a fine-tuning run says to its user at the start, and at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from unmask.recipes.recipe import FinetuningRecipe
from unmask.support.errors import counted
from unmask.support.messages import argument, setting
from unmask.tasks.rows import TextTask
from unmask.training.runs.display import Display
from unmask.training.settings import BudgetSettings
from unmask.workflows.finetuning.job import FewLabels
from unmask.workflows.finetuning.prepare import Prepared

FREEZE = argument("frozen", True)
"""What also avoids overfitting, besides early stopping."""
RISEN, RISEN_BY = 1.2, 0.01
"""Ratio of the held-out loss at the end to its minimum, and their difference, from which on a run has overfitted."""
MANY_CUT, WINDOWS = 0.05, 4
"""The share of truncated texts from which on a line says how to read more, and how many windows."""
FALLEN, FIRST_STEPS, MIN_STEPS = 0.98, 5, 60
"""Ratio of the training loss in the last third of the steps to that in the first few from which on nothing was learned,
their number, and the minimum number of steps to say so."""
MIN_EVALUATED = 50
"""Minimum number of held-out samples for evaluations during training, and to say that a run has overfitted."""


def announce(ready: Prepared, display: Display) -> None:
    """Print what was repaired, truncated or left out in the examples, and the main settings of the run."""
    display.say(*ready.notes, *ready.train.notes, *(f"dev: {note}" for note in ready.held.notes))
    if remedy := _describe_cut(ready.recipe, ready.train.cut):
        display.say(remedy)
    base, recipe, data, source = ready.base, ready.recipe, ready.data, ready.source
    title = recipe.task.title
    previous = f" (its own is for {', '.join(base.labels)})" if base.labels else ""
    replaced = recipe.probe and tuple(base.labels) == tuple(data.labels)
    new = [*base.created, *(() if ready.reuses_head or replaced else (f"the {title} head{previous}",))]
    labels = f", labels: {', '.join(data.labels)}" if data.labels else ""
    lacking = f", as {source} lacks it" if source else ""
    every = "all other weights" if replaced else "all weights"
    weights = f"newly initialized{lacking}: {', '.join(new)}" if new else f"{every} from {source}" if source else ""
    if ready.few is not None:
        display.say(f"few labels, {_describe_counts(ready)}: {_describe_rule(ready.few)}")
    if remark := recipe.task.remark(data.labels):
        display.say(remark)
    trained = counted(len(ready.split.train), "training example")
    display.say(f"{trained}, {counted(len(data.held), 'evaluation example')}{labels}")
    if recipe.budget.epochs != 0:
        samples = f"groups of {recipe.task.grouped}" if recipe.task.grouped else "sequences"
        display.say(
            f"learning rate {recipe.optimizer.learning_rate:g}, {recipe.batch.sequences or recipe.batch.tokens} "
            f"{samples if recipe.batch.sequences else 'tokens'} per step, seed {recipe.seed}"
        )
    if replaced:
        instead = "" if ready.few is None else f"; to train that head on: {argument('frozen', False)}"
        display.say(f"a logistic regression replaces the {title} head of {source}, which has the same labels{instead}")
    if weights:
        display.say(weights)


def _describe_cut(recipe: FinetuningRecipe, cut: Sequence[bool]) -> str:
    """Return how more of the texts would be read, if many single texts are truncated; otherwise ""."""
    task = recipe.task
    if not isinstance(task, TextTask) or task.windows > 1 or task.pairs or recipe.objectives:  # which read no windows
        return ""
    if sum(cut) < MANY_CUT * max(1, len(cut)):
        return ""
    return f"to read {WINDOWS} windows of each text, which takes longer: {setting('task.windows', WINDOWS)}"


def describe_overfitting(
    evaluations: Sequence[Mapping[str, Any]], samples: int, budget: BudgetSettings, instead: str = FREEZE
) -> str:
    """Return a warning if the held-out loss of a run fell and then rose again, by more than chance explains; or "".

    Args:
        evaluations: what was logged of each evaluation; a loss that was not finite is None.
        samples: number of held-out samples.
        budget: the budget of the run; one with `patience` returns to the lowest loss anyway.
        instead: what else to try.
    """
    losses = [line["loss"] for line in evaluations]
    if budget.patience is not None or len(losses) < 2 or samples < MIN_EVALUATED or None in losses:
        return ""
    lowest, last = min(losses), losses[-1]
    if last < max(RISEN * lowest, lowest + RISEN_BY):
        return ""
    best, total = evaluations[losses.index(lowest)]["step"], evaluations[-1]["step"]
    fewer = (
        f" or {setting('budget.epochs', float(f'{budget.epochs * best / total:.2g}'))}"
        if budget.epochs and best
        else ""
    )
    return (
        f"overfitted: the held-out loss rose from {lowest:.2f} at step {best:.0f} to {last:.2f}; "
        f"try {setting('budget.patience', 3)}{fewer}, {instead}, or more examples"
    )


def describe_plateau(losses: Sequence[float | None]) -> str:
    """Return a warning if the training loss of a new head has stayed where it was in the first steps; or "".

    Args:
        losses: that of each step, None if it was not finite. Of fewer than `MIN_STEPS` nothing is said.
    """
    finite = [loss for loss in losses if loss is not None]
    if len(losses) < MIN_STEPS or len(finite) < len(losses):
        return ""
    first, last = fmean(finite[:FIRST_STEPS]), fmean(finite[-len(finite) // 3 :])
    if last < FALLEN * first or first <= 0:
        return ""
    return (
        f"the training loss has not fallen ({first:.3f} in the first steps, {last:.3f} in the last third): the model "
        "has learned nothing from these examples; try more or easier ones, or another optimizer.learning_rate"
    )


def _describe_counts(ready: Prepared) -> str:
    """Return how many training examples labels have on average, and the rarest one if it has less than half as many."""
    train, labels = ready.split.train, ready.data.labels
    counts = Counter(label for example in train for label in ready.recipe.task.labels_of(example))
    average, least = round(len(train) / len(labels)), min(counts[label] for label in labels)
    rarest = f" on average, {least:,} of the rarest" if 2 * least < average else ""
    return f"{counted(average, 'example')} of each{rarest}"


def _describe_rule(few: FewLabels) -> str:
    """Return what the rule for few labels does, and how to have it otherwise."""
    longer = argument("frozen", False)
    if few.downstream is None:
        return (
            "a logistic regression on the encoder's features, then all parameters are trained, and probabilities are "
            "calibrated on parts of the examples"
        )
    if few.epochs:
        return (
            f"a logistic regression on the encoder's features, then {few.epochs:g} epochs of all parameters; "
            f"to train longer: {longer}"
        )
    of = " of the differences between the two texts" if few.downstream == "difference" else ""
    return f"the encoder stays frozen under a logistic regression{of}; to train it: {longer}"
