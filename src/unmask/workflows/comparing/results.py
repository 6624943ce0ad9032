"""What a comparison says: scores with intervals, which arms are best, and a recommendation in plain words.

Input: the results of the cells. Output: an `Outcome`, which the report shows and `unmask.compare` returns.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import msgspec
import numpy as np

from unmask.support.errors import UserError, counted
from unmask.support.messages import argument, call
from unmask.support.settings import to_table
from unmask.training.machine import Machine
from unmask.workflows.comparing.cells import Cell, Plan
from unmask.workflows.comparing.compute import CORPUS, MISTAKES, RESAMPLED, RUN
from unmask.workflows.comparing.judgement import Trials, behind, combined, estimate
from unmask.workflows.comparing.outcome import (
    ArmOutcome,
    CellOutcome,
    Difference,
    Estimate,
    Outcome,
    TaskFacts,
    TaskScore,
)
from unmask.workflows.comparing.settings import Arm, read_budget
from unmask.workflows.comparing.work import failure_of, folder_of, result_of

SHOWN = 10
"""Number of examples on which the two best arms differ that are shown for each task."""
USES = {
    "": "the tasks are learned by the rule for the number of labels",
    "finetuned": "all parameters are trained on the tasks",
    "frozen": "frozen features under a linear layer",
    "average": "frozen features, averaged",
    "rnn": "frozen features under an RNN",
}


class Limit(NamedTuple):
    """A limit of what is recommended, such as 5 ms."""

    amount: float
    unit: str

    def holds(self, arm: ArmOutcome) -> bool:
        """Return whether an arm is within it."""
        value = arm.fastest if self.unit == "ms" else arm.megabytes
        return value is not None and value <= self.amount

    def __str__(self) -> str:
        return f"{self.amount:g} {self.unit}"


def limits(words: Sequence[str]) -> list[Limit]:
    """Return limits such as 5ms or 50MB.

    Raises:
        UserError: one is not written so.
    """
    read = []
    for word in words:
        match = re.fullmatch(r"\s*([\d.]+)\s*(ms|MB)\s*", word)
        if match is None:
            raise UserError(f"{argument('at_most', word)}: not a limit", remedy="write for example 5ms or 50MB")
        read.append(Limit(float(match[1]), match[2]))
    return read


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

    def trials(self, arm: str, task: str, most: int | None = None) -> Trials | None:
        """Return the scores of an arm at a task, of at most so many seeds; None if there are none."""
        seeds = self.seeds(arm, task)[:most]
        if not seeds:
            return None
        results = [self.results[arm, task, seed] for seed in seeds]
        metric = results[0]["metric"]
        drawn = np.stack([np.load(self.folders[arm, task, seed] / RESAMPLED) for seed in seeds])
        full = np.array([result["metrics"][metric] for result in results])
        return Trials(full, drawn, results[0]["groups"])

    def overall(self, most: int | None = None) -> dict[str, Trials]:
        """Return the mean over all tasks of each arm that has scores of all of them."""
        overall = {}
        for arm in self.arms:
            parts = [self.trials(arm, task, most) for task in self.tasks]
            if all(part is not None for part in parts):
                overall[arm] = combined([part for part in parts if part is not None])
        return overall


def stopped_by_race(plan: Plan, out: Path) -> Collection[str] | None:
    """Return the keys of the cells of arms that are clearly worse; None while a seed is not complete for all others.

    After each seed from the second on, an arm stops that is behind the leader by an interval which holds for all arms
    and all such looks together (Bonferroni).
    """
    scores, looks = Scores(plan, out), max(1, plan.comparison.seeds - 2)
    stopped: set[str] = set()
    for seeds in range(1, plan.comparison.seeds):
        active = [arm for arm in plan.arms if arm not in stopped]
        needed = [cell for cell in plan.of("score") if cell.arm in active and cell.seed < seeds and cell.share == 1]
        if any(result_of(out, cell) is None and failure_of(out, cell) is None for cell in needed):
            return None
        if seeds < 2:
            continue
        overall = {arm: trials for arm, trials in scores.overall(seeds).items() if arm in active}
        if len(overall) > 1:
            _, others = behind(overall, looks)
            stopped |= {arm for arm, difference in others.items() if difference.low > 0}
    return {cell.key for cell in plan.cells if cell.arm in stopped and cell.seed}


def conclude(plan: Plan, out: Path, machine: Machine, restrictions: Sequence[Limit] = ()) -> Outcome:
    """Return what the finished cells say.

    Args:
        plan: the cells.
        out: the directory of the comparison.
        machine: device and precision.
        restrictions: what is recommended must be within them.
    """
    scores, overall = Scores(plan, out), Scores(plan, out).overall()
    complete = {arm: trials for arm, trials in overall.items() if len(trials.full) == plan.comparison.seeds}
    leader, others = behind(complete) if complete else ("", {})
    arms = [_arm(plan, out, scores, name, overall.get(name), others.get(name), leader) for name in plan.arms]
    arms.sort(key=lambda arm: (arm.score is None, arm.state == "stopped", -(arm.score.mean if arm.score else 0)))
    tasks = {}
    for name, data in plan.comparison.tasks.items():
        facts = next((result for (_, task, _), result in scores.results.items() if task == name), None)
        if facts is not None:
            numbers = (facts["trained_on"], facts["examples"], facts["labels"])
            tasks[name] = TaskFacts(data.task, facts["metric"], *numbers)
    allowed = [
        arm for arm in arms if arm.score and arm.state == "complete" and all(each.holds(arm) for each in restrictions)
    ]
    recommendation, best, sure = _recommendation(plan, allowed, restrictions, complete)
    return Outcome(
        recommendation=recommendation,
        best=best,
        sure=sure,
        arms=arms,
        tasks=tasks,
        differing=_differing(scores, [arm.name for arm in arms if arm.score][:2]),
        warnings=_warnings(plan, arms, scores),
        cells=[_cell(plan, out, cell) for cell in plan.cells],
        settings=to_table(plan.comparison),
        budget=str(read_budget(plan.comparison.budget)) if plan.comparison.budget else "",
        seeds=plan.comparison.seeds,
        machine=machine.describe(),
        versions=plan.cells[0].inputs["versions"],
    )


def _recommendation(
    plan: Plan, allowed: Sequence[ArmOutcome], restrictions: Sequence[Limit], complete: Mapping[str, Trials]
) -> tuple[list[str], list[str], bool]:
    """Return the recommendation in words, the arms that may be the best, and whether a single one is."""
    within = f" within {' and '.join(map(str, restrictions))}" if restrictions else ""
    if not allowed:
        nothing = "No arm has a score yet." if not restrictions or not complete else f"No arm is{within}."
        return [nothing], [], False
    leader, others = behind({arm.name: complete[arm.name] for arm in allowed})
    ties = [arm for arm in allowed if arm.name != leader and others[arm.name].low <= 0]
    first = next(arm for arm in allowed if arm.name == leader)
    assert first.score is not None
    seeds = (
        "" if plan.comparison.seeds > 1 else " With one seed, the variation between seeds is unknown: repeat with more."
    )
    if not ties:
        worse = [others[arm.name] for arm in allowed if arm.name != leader]
        lead = min(worse, key=lambda difference: difference.low) if worse else None
        by = f", at least {lead.low:.1f} points ahead of every other one" if lead else ", the only one"
        return [f"Use {leader}{within}{by}.", f"Its score is {_words(first.score)}.{seeds}"], [leader], True
    group = [first, *ties]
    cheapest = min(group, key=lambda arm: (arm.fastest or 1e9, arm.parameters, -(arm.score.mean if arm.score else 0)))
    names = ", ".join(arm.name for arm in group)
    lines = [f"Too close to call between {names}{within}. Take {cheapest.name}, the fastest of them."]
    if cheapest.fastest is None:
        lines = [f"Too close to call between {names}{within}. Take {cheapest.name}, the smallest of them."]
    gap = others[ties[0].name]
    lines.append(
        f"{leader} scored highest, {_words(first.score)}; {ties[0].name} is {gap.mean:.1f} points behind, "
        f"and the difference may be anything from {gap.low:.1f} to {gap.high:.1f}. More seeds or more test examples "
        f"would tell.{seeds}"
    )
    return lines, [cheapest.name, *(arm.name for arm in group if arm.name != cheapest.name)], False


def _words(score: Estimate) -> str:
    return f"{score.mean:.1f} (95 %: {score.low:.1f} to {score.high:.1f})"


def _arm(
    plan: Plan,
    out: Path,
    scores: Scores,
    name: str,
    overall: Trials | None,
    difference: Estimate | None,
    leader: str,
) -> ArmOutcome:
    """Return an arm as the report shows it."""
    arm = plan.arms[name]
    cells = [cell for cell in plan.cells if cell.arm == name and cell.share == 1]
    failures = [failure.error for cell in cells if (failure := failure_of(out, cell))]
    by_task = {}
    for task in scores.tasks:
        trials, seeds = scores.trials(name, task), scores.seeds(name, task)
        if trials is not None:
            errors = [value for seed in seeds for value in scores.results[name, task, seed]["calibration"].values()]
            calibration = mean(errors) if errors else None
            metric = scores.results[name, task, 0]["metric"]
            by_task[task] = TaskScore(metric, estimate(trials), trials.full.tolist(), calibration)
    results = [result for (owner, _, _), result in scores.results.items() if owner == name]
    trained = [result for cell in cells if cell.kind == "pretraining" and (result := result_of(out, cell))]
    costs = next((result for cell in cells if cell.kind == "cost" and (result := result_of(out, cell))), None)
    engines = costs["engines"] if costs else []
    exact = next((row for row in engines if (row["backend"], row["precision"]) == ("torch", "float32")), None)
    fast = min(engines, key=lambda row: row["p50_ms"], default=None)
    complete = overall is not None and len(overall.full) == plan.comparison.seeds
    state = "complete" if complete else "failed" if failures else "stopped" if overall else "unfinished"
    return ArmOutcome(
        name=name,
        how=describe(arm, plan.comparison.budget),
        state=state,
        error="" if complete else next(iter(failures), ""),
        scores=by_task,
        score=estimate(overall) if overall else None,
        behind=difference,
        close=name == leader or (difference is not None and difference.low <= 0),
        parameters=results[0]["parameters"] if results else 0,
        trained_seconds=mean(result["seconds"] for result in trained) if trained else 0.0,
        trained_tokens=mean(result["tokens"] for result in trained) if trained else 0.0,
        learning_seconds=sum(result["seconds"] for result in results) / max(1, plan.comparison.seeds),
        memory=max((result["memory"] for result in (*results, *trained)), default=0),
        latency=exact["p50_ms"] if exact else None,
        engine=f"{fast['backend']} {fast['precision']}" if fast else "",
        engine_latency=fast["p50_ms"] if fast else None,
        speed=max((row["sentences_per_second"] for row in engines), default=None),
        curve=[
            (line["seconds"] / 60, line["tokens"], line["loss"]) for line in (trained[0]["curve"] if trained else [])
        ],
    )


def describe(arm: Arm, budget: str) -> str:
    """Return in words how an arm comes to its model, and how tasks are learned from it."""
    amount = str(read_budget(budget)) if budget else ""
    ways = {
        "": f"{arm.model} as it is",
        "pretrain": f"{arm.recipe}, pretrained on the text for {amount}",
        "adapt": f"{arm.model}, adapted to the text for {amount}",
        "distill": f"a student of {arm.model}{arm.recipe and f' ({arm.recipe})'}, taught on the text for {amount}",
        "random": f"random weights of {arm.recipe}",
    }
    changes = ", ".join(f"{key} = {value}" for key, value in {**arm.settings, **arm.task_settings}.items())
    return f"{ways[arm.way]}; {USES[arm.use]}{f' ({changes})' if changes else ''}."


def _differing(scores: Scores, names: Sequence[str]) -> list[Difference]:
    """Return examples that one of the two best arms gets right and the other does not, with the first seed."""
    if len(names) < 2:
        return []
    differing = []
    for task in scores.tasks:
        wrong = []
        for name in names:
            path = scores.folders.get((name, task, 0), Path()) / MISTAKES
            listed = msgspec.json.decode(path.read_bytes()) if path.is_file() else []
            wrong.append({mistake["where"]: mistake for mistake in listed})
        for number, name in enumerate(names):
            only = [mistake for where, mistake in wrong[number].items() if where not in wrong[1 - number]]
            differing += [Difference(task=task, wrong=name, **mistake) for mistake in only[: SHOWN // 2]]
    return differing


def _warnings(plan: Plan, arms: Sequence[ArmOutcome], scores: Scores) -> list[str]:
    warnings = []
    if failed := [arm.name for arm in arms if arm.state == "failed"]:
        warnings.append(f"Failed, and not compared: {', '.join(failed)}.")
    if unfinished := [arm.name for arm in arms if arm.state == "unfinished"]:
        warnings.append(f"Not finished: {', '.join(unfinished)}.")
    for task in scores.tasks:
        results = [result for (_, name, _), result in scores.results.items() if name == task]
        if results and results[0]["groups"] < 200:
            warnings.append(
                f"{task} has {counted(results[0]['groups'], 'independent test example')}: only large differences show."
            )
        notes = dict.fromkeys(note for result in results for note in result["notes"] if "equal" in note)
        warnings += [f"{task}: {note}." for note in notes]
    return warnings


def _cell(plan: Plan, out: Path, cell: Cell) -> CellOutcome:
    """Return a cell as the report shows it, with the command that repeats it."""
    result, failure = result_of(out, cell), failure_of(out, cell)
    state = "done" if result else "failed" if failure else "not computed"
    seconds = result["elapsed"] if result else 0.0
    return CellOutcome(cell.name, cell.key, state, seconds, failure.error if failure else "", _command(out, cell))


def _command(out: Path, cell: Cell) -> str:
    """Return the call that repeats a cell by itself, as a reference of `support.messages`."""
    folder, paths = folder_of(out, cell), cell.paths
    needed = {name: folder_of(out, other) for name, other in cell.needs.items()}
    if cell.kind == "pretraining":
        recipe, corpus = folder / RUN / "recipe.toml", needed["corpus"] / CORPUS
        if cell.inputs["way"] == "distill":
            return call("distill", recipe, teacher=paths["model"], corpus=corpus, out="RUN")
        init = {"init": paths["model"]} if paths["model"] else {}
        return call("pretrain", recipe, corpus=corpus, out="RUN", **init)
    if cell.kind != "score":
        return ""
    inputs = cell.inputs
    if "recipe" in paths:
        tokenizer = needed["tokenizer"] / "tokenizer" if "tokenizer" in needed else paths["tokenizer"]
        model = {"model": f"random:{folder / 'random.toml'}", "tokenizer": tokenizer}
    else:
        model = {"model": needed["model"] / RUN if "model" in needed else paths["model"]}
    settings = {**inputs["settings"], "seed": cell.seed}
    if "rate" in cell.needs and (chosen := result_of(out, cell.needs["rate"])) and chosen["rate"] is not None:
        settings["optimizer.learning_rate"] = chosen["rate"]
    use = {} if paths["frozen"] is None else {"frozen": paths["frozen"]}
    use |= {"downstream": paths["small"]} if paths["small"] else {}
    dev = {"dev": paths["test"]} if paths["test"] else {}
    columns = {"columns": inputs["columns"]} if inputs["columns"] else {}
    return call(
        "finetune", inputs["task"], **model, train=paths["train"], **dev, **columns, **use, settings=settings, out="RUN"
    )
