"""What is recommended of the arms that a user can take, and what a comparison warns of, in plain words.

Input: arms within the user's limits, and their scores. Output: paragraphs, and the names of the arms that may be best.

Warnings are of failed arms, test examples that were seen, scores that say nothing, and unequal machines; notes are of
what is unfinished, of few examples, and of what was done to texts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from unmask.metrics.comparison.decision import Standing, listed
from unmask.metrics.comparison.decision import compare as compare_arms
from unmask.metrics.comparison.multibootstrap import Resampled
from unmask.support.errors import UserError, counted
from unmask.support.messages import argument
from unmask.training.machine import Machine
from unmask.workflows.comparing.cells import NEEDED, Plan, failure_of, result_of
from unmask.workflows.comparing.outcome import ArmOutcome, TaskFacts
from unmask.workflows.comparing.scores import Scores
from unmask.workflows.comparing.settings import read_budget

ABOUT = 1.25
"""Ratio of costs up to which they count as equal."""
ROUNDING = 1e-6
"""How far above another score is no more than rounding."""
FEW = 200
"""Number of independent test examples below which the report warns."""
KNOWN, CLEARLY = -4.0, 0.9
"""Standard errors, and ratio of bits, from which on test texts are known suspiciously well."""
UNEQUAL = 1.25
"""Ratio of minutes to those of the budget from which on the report warns."""


class Limit(NamedTuple):
    """A limit of what is recommended, such as 5 ms."""

    amount: float
    unit: str

    def holds(self, arm: ArmOutcome) -> bool:
        """Return whether an arm is within it."""
        value = arm.engine_latency if self.unit == "ms" else arm.megabytes
        return value is not None and value <= self.amount

    def __str__(self) -> str:
        return f"{self.amount:g} {self.unit}"


class Wording(NamedTuple):
    """How scores are said.

    Attributes:
        sign: 1, or -1 where scores are the negative of what is said.
        digits: number of decimals.
        best, own: what stands before the score of the best arm.
        leads: what the best of several does.
        above: in what units one is better than another.
        more: what would tell arms apart, besides seeds.
    """

    sign: int
    digits: int
    best: str
    own: str
    leads: str
    above: str
    more: str

    def number(self, value: float) -> str:
        """Return a score, or a difference, in words."""
        return f"{self.sign * value + 0.0:.{self.digits}f}"

    def interval(self, low: float, high: float) -> str:
        """Return the interval of a score in words."""
        return " to ".join(map(self.number, (low, high)[:: self.sign]))


BY_SCORE = Wording(1, 1, "scored highest,", "Its score is", "scored highest", "points above", "test examples")
BY_BITS = Wording(
    -1,
    3,
    "needs the fewest bits per character of held-out text:",
    "It needs",
    "needs the fewest bits",
    "bits per character below",
    "text",
)


def limits(words: Sequence[str]) -> list[Limit]:
    """Return limits such as 5ms or 50MB.

    Raises:
        UserError: one is not written so.
    """
    read = []
    for word in words:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|MB)\s*", word)
        if match is None:
            raise UserError(f"{argument('at_most', word)}: not a limit", remedy="write for example 5ms or 50MB")
        read.append(Limit(float(match[1]), match[2]))
    return read


def recommend(
    within_limits: Sequence[ArmOutcome],
    restrictions: Sequence[Limit],
    complete: Mapping[str, Resampled],
    stopped: Mapping[str, Resampled],
    tasks: Mapping[str, TaskFacts],
) -> tuple[list[str], list[str]]:
    """Return the recommendation in words, and the arms that may be the best, first the one to take.

    Args:
        within_limits: the arms that are within the limits, best first.
        restrictions: the limits.
        complete: the scores of all arms that have all of theirs.
        stopped: those of arms within the limits that stopped early, as worse than arms that are none of these.
        tasks: the tasks; without any, scores are minus the bits of held-out text.
    """
    wording = BY_SCORE if tasks else BY_BITS
    allowed = complete_arms(within_limits)
    within = f" within {' and '.join(map(str, restrictions))}" if restrictions else ""
    scored = {arm.name: complete[arm.name] for arm in allowed}
    unsettled = [name for name in compare_arms({**scored, **stopped}).contenders if name in stopped] if stopped else []
    if unsettled:
        return [
            f"Not decided{within}: {listed(unsettled)}. They stopped early, as clearly worse than arms that cannot "
            f"be taken. Compare them without {argument('race')}; what is finished is not computed again."
        ], []
    if not allowed:
        return [f"No arm is known to be{within}." if complete else "No arm has all its scores."], []
    compared = compare_arms(scored)
    leader, *others = compared.standings
    best = f"{leader.name} {wording.best}"
    contenders = compared.contenders
    untrained = [arm.name for arm in allowed if arm.untrained and arm.name in contenders]
    if others:  # one that may be the best, too, if there is one
        second = next((other for other in others if other.name in (untrained or contenders)), others[0])
        behind, (low, high) = 0.0 - second.difference, sorted(-end for end in second.difference_interval)
        apart = f"{behind:.{wording.digits}f} {wording.above} {second.name}"
        between = f"{low:.{wording.digits}f} to {high:.{wording.digits}f}"
        unsure = (
            f"{apart}, but the difference may be anything from {between}. More seeds or more {wording.more} would tell."
        )
    score = f"{wording.number(leader.score)} (95 %: {wording.interval(*leader.interval)})"
    one_seed = all(len(complete[arm.name].seeds) == 1 for arm in allowed)
    doubt = _unlearned(compared.standings, tasks)
    if not (doubt or one_seed or all(arm.untrained for arm in allowed)) and untrained:
        doubt = (
            f"is clearly better than random weights, {listed(untrained)}: what others learned before "
            "is worth nothing that shows here."
        )
    if doubt:
        ahead = "." if not others else f", {apart}." if compared.recommended else f", {unsure}"
        return [f"No arm{within} {doubt}", f"{best} {score}{ahead}"], list(contenders)
    if others and one_seed:
        lines = [
            f"One seed cannot tell arms apart{within}: how much a score changes from seed to seed is unknown.",
            f"{best} {wording.number(leader.score)}, {apart}. "
            "Repeat with 3 seeds; what is finished is not computed again.",
        ]
        return lines, [standing.name for standing in compared.standings]
    if compared.recommended:
        if others:
            first = f"Use {leader.name}{within}: {apart}, the next one ({between})."
        elif early := [arm.name for arm in within_limits if arm.state == "stopped"]:
            first = f"Use {leader.name}{within}: {listed(early)} stopped early, as clearly worse."
        elif len(complete) > 1:
            first = f"Use {leader.name}{within}, the only arm."
        else:
            first = f"Nothing is recommended: no other arm than {leader.name} has all its scores."
        return [first, f"{wording.own} {score}."], [leader.name]
    group = [arm for arm in allowed if arm.name in contenders]
    cheapest, why = _cheapest(group, wording.leads)
    first = f"Too close to call between {listed(contenders)}{within}. Take {cheapest.name}, {why}."
    names = [cheapest.name, *(arm.name for arm in group if arm.name != cheapest.name)]
    return [first, f"{best} {score}, {unsure}"], names


def complete_arms(arms: Sequence[ArmOutcome]) -> list[ArmOutcome]:
    """Return the arms that have all their scores, which alone can be recommended."""
    return [arm for arm in arms if arm.state == "complete"]


def is_above(low: float, constant: float) -> bool:
    """Return whether an interval that begins at `low` is above the score of one prediction for all examples."""
    return low > constant + ROUNDING


def _unlearned(standings: Sequence[Standing], tasks: Mapping[str, TaskFacts]) -> str:
    """Return in words that no arm scores clearly above the same prediction for all examples, or ""."""
    constants = [facts.constant for facts in tasks.values() if facts.constant is not None]
    constant = sum(constants) / max(1, len(tasks))
    if not tasks or len(constants) < len(tasks) or any(is_above(arm.interval[0], constant) for arm in standings):
        return ""
    score = f"{constant:.1f}" + (" on average" if len(tasks) > 1 else "")
    return (
        f"scores clearly above the same prediction for all examples ({score}): nothing shows that any has learned "
        f"what the {'tasks need' if len(tasks) > 1 else 'task needs'}."
    )


def _cheapest(arms: Sequence[ArmOutcome], leads: str) -> tuple[ArmOutcome, str]:
    """Return the best of the arms that cost about as little as the one that costs least, and why, in words."""
    timed = all(arm.engine_latency is not None for arm in arms)
    costs = [(arm.engine_latency if timed else None) or float(arm.parameters) for arm in arms]
    cheap = [arm for arm, cost in zip(arms, costs, strict=True) if cost <= ABOUT * min(costs)]
    chosen = max(cheap, key=lambda arm: arm.score.mean if arm.score else -math.inf)
    least = "fastest" if timed else "smallest"
    if len(cheap) == len(arms):
        return chosen, f"the one that {leads}"
    return chosen, f"the one of the {least} that {leads}" if len(cheap) > 1 else f"the {least}"


def caveats(scores: Scores, arms: Sequence[ArmOutcome], machine: Machine) -> list[str]:
    """Return warnings: what makes figures less trustworthy, in words.

    Args:
        scores: the scores of the cells.
        arms: the arms.
        machine: the one that the report names.
    """
    plan, out, warnings = scores.plan, scores.out, list[str]()
    failed = [arm.name for arm in arms if arm.state == "failed"]
    warnings += [f"{arm.name} has failed, and is not compared: {arm.error}" for arm in arms if arm.name in failed]
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
    return warnings + _of_machines(plan, out, machine) + _of_minutes(plan, arms) + _of_tasks(scores, "warnings")


def remarks(scores: Scores, arms: Sequence[ArmOutcome], tasks: Mapping[str, TaskFacts]) -> list[str]:
    """Return notes: what else is to be known of the arms and the tasks, in words.

    Args:
        scores: the scores of the cells.
        arms: the arms.
        tasks: what is known of the tasks.
    """
    notes, decides = list[str](), any(True for _ in scores.plan.scored)  # not in a first look
    if unfinished := [arm.name for arm in arms if decides and arm.state == "unfinished"]:
        notes.append(f"Not finished: {listed(unfinished)}.")
    for task, facts in tasks.items() if len(tasks) > 1 else ():  # of a single one, the recommendation tells
        scored = {arm.name: arm.scores[task].score for arm in arms if task in arm.scores}
        best, score = max(scored.items(), key=lambda item: item[1].mean)
        if facts.constant is not None and not any(is_above(each.low, facts.constant) for each in scored.values()):
            notes.append(
                f"{task}: no arm scores clearly above the same prediction for all examples ({facts.constant:.1f}); "
                f"{best} scored highest, {score.mean:.1f} (95 %: {score.low:.1f} to {score.high:.1f})."
            )
    return notes + _of_text(scores.plan, scores.out) + _of_tasks(scores, "notes")


def _of_text(plan: Plan, out: Path) -> list[str]:
    """Return what is told of training on text with the whole budget and of bits, once for all arms it is true of."""
    owners: dict[str, dict[str, None]] = {}
    for cell in (*plan.of("pretraining"), *plan.of("bits")):
        for note in (result_of(out, cell) or {}).get("notes", ()) if cell.share == 1 else ():
            owners.setdefault(note, {}).update(dict.fromkeys(plan.owners[cell.key]))
    return [f"{listed(list(arms))}: {note}." for note, arms in owners.items()]


def _of_tasks(scores: Scores, kind: Literal["notes", "warnings"]) -> list[str]:
    """Return what is told of the examples of tasks and the models, once for all tasks and arms of which it is true."""
    told: dict[str, list[str]] = {}
    for task in scores.plan.tasks:
        results = [(arm, result) for (arm, name, _), result in scores.results.items() if name == task]
        owners: dict[str, list[str]] = {}
        for arm, result in results:
            for note in result.get(kind, ()):
                owners.setdefault(note, []).append(arm)
        notes, arms = list[str](), {arm for arm, _ in results}
        if kind == "notes" and results and (number := results[0][1]["independent"]) < FEW:
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
