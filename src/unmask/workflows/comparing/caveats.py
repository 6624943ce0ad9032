"""What a comparison warns of: failed arms, test examples that were seen, too few of them, and unequal machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from unmask.metrics.comparison.decision import listed
from unmask.support.errors import counted
from unmask.training.machine import Machine
from unmask.workflows.comparing.cells import NEEDED, Plan, failure_of, result_of
from unmask.workflows.comparing.outcome import ArmOutcome, TaskFacts
from unmask.workflows.comparing.recommendation import is_above
from unmask.workflows.comparing.scores import Scores
from unmask.workflows.comparing.settings import read_budget

FEW = 200
"""Number of independent test examples below which the report warns."""
KNOWN, CLEARLY = -4.0, 0.9
"""Standard errors, and ratio of bits, from which on test texts are known suspiciously well."""
UNEQUAL = 1.25
"""Ratio of minutes to those of the budget from which on the report warns."""


def caveats(scores: Scores, arms: Sequence[ArmOutcome], tasks: Mapping[str, TaskFacts], machine: Machine) -> list[str]:
    """Return what makes figures less trustworthy, in words.

    Args:
        scores: the scores of the cells.
        arms: the arms.
        tasks: what is known of the tasks.
        machine: the one that the report names.
    """
    plan, out, warnings = scores.plan, scores.out, list[str]()
    failed = [arm.name for arm in arms if arm.state == "failed"]
    warnings += [f"{arm.name} has failed, and is not compared: {arm.error}" for arm in arms if arm.name in failed]
    decides = any(True for _ in plan.scored)  # not in a first look
    if unfinished := [arm.name for arm in arms if decides and arm.state == "unfinished"]:
        warnings.append(f"Not finished: {listed(unfinished)}.")
    for cell in plan.cells:
        told = cell.kind in ("score", "pretraining", "corpus", "rate") or (cell.kind == "bits" and not plan.tasks)
        failure = None if told or cell.arm in failed else failure_of(out, cell)
        if failure is not None and not failure.error.startswith(NEEDED):
            warnings.append(f"Not known, since it failed: {cell.name} ({failure.error}).")
    for cell in plan.of("overlap"):
        if (found := result_of(out, cell)) and found["seen"]:
            warnings.append(
                f"{cell.task}: {found['seen']:,} of {found['examples']:,} test examples "
                f"{'occurs' if found['seen'] == 1 else 'occur'} in the text that arms are trained on: these arms have "
                "seen what they are tested on."
            )
    for cell in plan.of("familiarity"):
        compared = result_of(out, cell) or {}
        if "z" in compared and compared["z"] < KNOWN and compared["test"] < CLEARLY * compared["train"]:
            warnings.append(
                f"{listed(plan.owners[cell.key])}: {cell.paths['model']} predicts the test texts of {cell.task} with "
                f"{compared['test']:.2f} bits per token, the training texts with {compared['train']:.2f}: it may have "
                "been trained on the test texts."
            )
    for task, facts in tasks.items() if len(tasks) > 1 else ():  # of a single one, the recommendation tells
        scored = {arm.name: arm.scores[task].score for arm in arms if task in arm.scores}
        best, score = max(scored.items(), key=lambda item: item[1].mean)
        if facts.constant is not None and not any(is_above(each.low, facts.constant) for each in scored.values()):
            warnings.append(
                f"{task}: no arm scores clearly above the same prediction for all examples ({facts.constant:.1f}); "
                f"{best} scored highest, {score.mean:.1f} (95 %: {score.low:.1f} to {score.high:.1f})."
            )
    return warnings + _of_machines(plan, out, machine) + _of_minutes(plan, arms) + _of_tasks(scores)


def _of_tasks(scores: Scores) -> list[str]:
    """Return what is told of the examples of tasks and the models, once for all tasks and arms of which it is true."""
    told: dict[str, list[str]] = {}
    for task in scores.plan.tasks:
        results = [(arm, result) for (arm, name, _), result in scores.results.items() if name == task]
        owners: dict[str, list[str]] = {}
        for arm, result in results:
            for note in result["notes"]:
                owners.setdefault(note, []).append(arm)
        notes, arms = list[str](), {arm for arm, _ in results}
        if results and (number := results[0][1]["independent"]) < FEW:
            notes.append(f"{counted(number, 'independent test example')}, so only large differences show")
        for note, of in owners.items():
            notes.append(note if set(of) == arms else f"{listed(list(dict.fromkeys(of)))}: {note}")
        for note in notes:
            told.setdefault(note, []).append(task)
    return [f"{', '.join(tasks)}: {note}." for note, tasks in told.items()]


def _of_minutes(plan: Plan, arms: Sequence[ArmOutcome]) -> list[str]:
    """Return a warning of arms whose training took other minutes than the budget, into which steps are converted."""
    budget = read_budget(plan.comparison.budget) if plan.comparison.budget else None
    if budget is None or budget.unit != "minutes":
        return []
    ratios = {arm.name: arm.trained_seconds / 60 / budget.amount for arm in arms if arm.trained_seconds}
    unequal = [f"{name} {ratio:.2g} times" for name, ratio in ratios.items() if not 1 / UNEQUAL < ratio < UNEQUAL]
    if not unequal:
        return []
    return [
        f"Training on text took other minutes than the budget ({', '.join(unequal)}): initial embeddings or steps "
        "took more or less time than expected when steps were counted. Budgets in tokens or operations do not depend "
        "on that."
    ]


def _of_machines(plan: Plan, out: Path, here: Machine) -> list[str]:
    """Return a warning of what was measured, or trained for minutes, on machines that are not equally fast."""
    minutes = bool(plan.comparison.budget) and read_budget(plan.comparison.budget).unit == "minutes"
    kinds = {"cost": "Speed was measured", **({"pretraining": "Arms were trained for minutes"} if minutes else {})}
    warnings = []
    for kind, what in kinds.items():
        results = [result for cell in plan.cells if cell.kind == kind and (result := result_of(out, cell))]
        known = [result["machine"] for result in results if "machine" in result]
        known += [here.describe()] if known and kind == "cost" else []  # the report says that it is this one
        machines = dict.fromkeys(f"{one['name']}, {counted(int(one['threads']), 'thread')}" for one in known)
        if len(machines) > 1:
            warnings.append(f"{what} on different machines ({'; '.join(machines)}), so arms are not comparable in it.")
    return warnings
