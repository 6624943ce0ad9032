"""What a comparison says: scores with intervals, which arms are best, and a recommendation in plain words.

Input: the results of the cells. Output: an `Outcome`, which the report shows and `unmask.compare` returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec
import numpy as np

from unmask.inference.bench import CLOSE
from unmask.metrics import regression
from unmask.metrics.comparison.decision import Standing
from unmask.metrics.comparison.decision import compare as compare_arms
from unmask.metrics.comparison.estimates import mean_score
from unmask.support.messages import in_command, rendered
from unmask.support.settings import to_table
from unmask.tasks.tuning import CALIBRATION_ERROR
from unmask.training.machine import Machine
from unmask.training.runs.usage import FILE as USAGE
from unmask.training.runs.usage import describe_usage, read_usage
from unmask.workflows.comparing.cells import (
    MISTAKES,
    RUN,
    Cell,
    Plan,
    command_of,
    content_of,
    failure_of,
    folder_of,
    result_of,
)
from unmask.workflows.comparing.outcome import (
    ArmOutcome,
    CellOutcome,
    Difference,
    Estimate,
    LookOutcome,
    Outcome,
    TaskFacts,
    TaskScore,
)
from unmask.workflows.comparing.recommendation import Limit, caveats, complete_arms, recommend, remarks
from unmask.workflows.comparing.scores import Scores, by_examples, effects, more_examples, prospects, race, signed
from unmask.workflows.comparing.settings import Arm, read_budget

SHOWN = 10
"""Number of examples on which the two best arms differ that are shown for each task."""
USES = {
    "": "the tasks are learned by the rule for the number of labels",
    "finetuned": "all parameters are trained on the tasks",
    "frozen": "frozen features under a linear layer",
    "average": "frozen features, averaged",
    "rnn": "frozen features under an RNN",
}


def conclude(
    plan: Plan, out: Path, machine: Machine, restrictions: Sequence[Limit] = (), price: float | None = None
) -> Outcome:
    """Return what the finished cells say.

    Args:
        plan: the cells.
        out: the directory of the comparison.
        machine: device and precision.
        restrictions: what is recommended must be within them.
        price: of an hour of a machine; see `describe_usage`.
    """
    scores = Scores(plan, out)
    overall = scores.overall()
    states = {name: _state(scores, name)[0] for name in overall}
    complete = {name: scored for name, scored in overall.items() if states[name] == "complete"}
    ranked = {name: scored for name, scored in overall.items() if states[name] in ("complete", "stopped")} or overall
    compared = compare_arms(ranked) if ranked else None
    standings = {standing.name: standing for standing in (compared.standings if compared else ())}
    if 0 < len(complete) < len(ranked):  # as they are recommended: without arms that have fewer seeds
        standings |= {standing.name: standing for standing in compare_arms(complete).standings}
    costs = {
        name: result for cell in plan.of("cost") if (result := result_of(out, cell)) for name in plan.owners[cell.key]
    }
    arms = [_arm(scores, name, standings.get(name), _engines(costs, name)) for name in plan.arms]
    arms.sort(key=lambda arm: (arm.score is None, arm.state == "stopped", -(arm.score.mean if arm.score else 0)))
    within = [arm for arm in arms if all(limit.holds(arm) for limit in restrictions)]
    stopped = {name: overall[name] for name in _stopped_by_others(scores, within)}
    tasks = _tasks(scores)
    recommendation, best = recommend(within, restrictions, complete, stopped, tasks)
    looks = looks_of(scores)
    if looks and not overall:
        orders = "; ".join(f"for {look.task}: {look.order}" for look in looks)
        recommendation = [
            f"A first look at features, without training, by H-score (LogME for regression), {orders}.",
            "Such an order is a hint: train the first few by the same comparison.",
        ]
    notes = list(compared.notes) if compared else []
    expected = prospects(scores, notes) + more_examples(scores, notes)
    changes = effects(plan, {name: overall[name] for name in overall if states[name] != "failed"}, notes)
    return Outcome(
        recommendation=[rendered(line) for line in recommendation],
        best=best,
        arms=arms,
        tasks=tasks,
        effects=changes,
        looks=looks,
        by_examples=by_examples(plan),
        prospects=expected,
        differing=_differing(scores, [arm.name for arm in arms if arm.score][:2]) if plan.tasks else [],
        warnings=[rendered(line) for line in caveats(scores, arms, machine)],
        notes=[rendered(line) for line in (*remarks(scores, arms, tasks), *(f"{note}." for note in notes))],
        cells=[_cell(out, cell) for cell in plan.cells],
        settings=to_table(plan.comparison),
        recipes=_recipes(plan, out),
        budget=str(read_budget(plan.comparison.budget)) if plan.comparison.budget else "",
        seeds=plan.comparison.seeds,
        machine=machine.describe(),
        versions=plan.cells[0].inputs["versions"],
        used=describe_usage([of for cell in plan.cells for of in read_usage(folder_of(out, cell) / USAGE)], price),
    )


def _tasks(scores: Scores) -> dict[str, TaskFacts]:
    """Return what is known of each task, by the first of its results."""
    tasks = {}
    for name, data in scores.plan.tasks.items():
        facts = next((result for (_, task, _), result in scores.results.items() if task == name), None)
        if facts is not None:
            numbers, metric = (facts["trained_on"], facts["examples"], facts["labels"]), scores.metric(name, facts)
            constant = facts["constant"].get(metric, 0.0) if "constant" in facts else None
            tasks[name] = TaskFacts(data.task, metric, *numbers, constant)
    return tasks


def _recipes(plan: Plan, out: Path) -> dict[str, str]:
    """Return the recipes of what was trained with the first seed and the whole budget, by the name of the cell."""
    return {
        cell.name: recipe.read_text(encoding="utf8")
        for cell in plan.cells
        if cell.kind in ("pretraining", "score") and not cell.seed and cell.share == 1
        if (recipe := folder_of(out, cell) / RUN / "recipe.toml").is_file() and result_of(out, cell)
    }


def _stopped_by_others(scores: Scores, within: Sequence[ArmOutcome]) -> list[str]:
    """Return the names of arms within the limits that a race stopped in favor of one that cannot be recommended."""
    plan, names = scores.plan, {arm.name for arm in complete_arms(within)}
    losers = race(plan, scores.out).losers if plan.comparison.race else {}
    stopped = []
    for arm in within:
        better = arm.name
        while better in losers:
            better = losers[better]
        if arm.state == "stopped" and arm.name in losers and better not in names:
            stopped.append(arm.name)
    return stopped


def _mean_by_label(results: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return the mean scores of each label, over the seeds whose models know it."""
    known: dict[str, list[dict[str, float]]] = {}
    for result in results:
        for label, values in result.items():
            known.setdefault(label, []).append(values)
    return {
        label: {name: mean(values[name] for values in seeds) for name in seeds[0] if name != "examples"}
        for label, seeds in known.items()
    }


def _arm(scores: Scores, name: str, standing: Standing | None, engines: Sequence[dict[str, Any]]) -> ArmOutcome:
    """Return an arm as the report shows it."""
    plan, out = scores.plan, scores.out
    arm = plan.arms[name]
    cells = [cell for cell in plan.of_arm(name) if cell.share == 1]
    by_task = {}
    for task in plan.tasks:
        scored, seeds = scores.of_task(name, task), scores.seeds(name, task)
        if scored is not None:
            of_seeds = [scores.results[name, task, seed] for seed in seeds]
            errors = [errors[CALIBRATION_ERROR] for result in of_seeds if (errors := result["calibration"])]
            by_task[task] = TaskScore(
                scores.metric(task, of_seeds[0]),
                Estimate(*mean_score(scored)),
                scored.scores.tolist(),
                mean(errors) if errors else None,
                _mean_by_label([result.get("by_label", {}) for result in of_seeds]),
            )
    results = [result for (owner, _, _), result in scores.results.items() if owner == name]
    models = {cell.needs["model"].key: cell.needs["model"] for cell in cells if "model" in cell.needs}  # arms may share
    trained = [result for cell in models.values() if (result := result_of(out, cell))]
    predicted = next((result for cell in cells if cell.kind == "bits" and (result := result_of(out, cell))), {})
    bits = Estimate(predicted["bits"], predicted["low"], predicted["high"]) if "bits" in predicted else None
    if not plan.tasks:
        bits = signed(-1, standing.score, *standing.interval) if standing else None
    learned = results if plan.tasks else []
    num_seeds = max(1, len({seed for owner, _, seed in scores.results if owner == name}))  # fewer, if it was stopped
    exact = next((row for row in engines if (row["backend"], row["precision"]) == ("torch", "float32")), None)
    fast = min(engines, key=lambda row: row["p50_ms"], default=None)
    state, error = _state(scores, name)
    return ArmOutcome(
        name=name,
        how=describe(arm, plan.comparison.budget),
        state=state,
        error=error,
        scores=by_task,
        score=Estimate(standing.score, *standing.interval) if standing else None,
        interquartile=Estimate(*standing.interquartile) if standing and standing.interquartile else None,
        behind=_behind(standing) if standing and standing.difference_interval != (0, 0) else None,
        parameters=results[0]["parameters"] if results else 0,
        trained_seconds=mean(result["seconds"] for result in trained) if trained else 0.0,
        trained_tokens=mean(result["tokens"] for result in trained) if trained else 0.0,
        learning_seconds=sum(result["seconds"] for result in learned) / num_seeds,
        memory=max((result["memory"] for result in (*learned, *trained)), default=0),
        latency=exact["p50_ms"] if exact else None,
        engine=f"{fast['backend']} {fast['precision']}" if fast else "",
        engine_latency=fast["p50_ms"] if fast else None,
        speed=max((row["sentences_per_second"] for row in engines), default=None),
        bits=bits,
        bits_by_seed=[] if plan.tasks else [scores.results[name, "", seed]["bits"] for seed in scores.seeds(name, "")],
        pseudo=predicted.get("head") == "masked_lm",
        curve=[
            (line["seconds"] / 60, line["tokens"], line["loss"]) for line in (trained[0]["curve"] if trained else [])
        ],
        untrained=arm.way == "random",
    )


def _engines(costs: Mapping[str, dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the engines of an arm whose outputs are near those of torch, given what was measured of all arms.

    Models of the same shape are equally fast: of several measurements of one, the fastest was disturbed least.
    """
    if name not in costs:
        return []
    rows = []
    for row in costs[name]["engines"]:
        alike = [
            other
            for result in costs.values()
            if result["shape"] == costs[name]["shape"]
            for other in result["engines"]
            if (other["backend"], other["precision"]) == (row["backend"], row["precision"])
        ]
        if row["difference"] <= CLOSE[row["precision"]]:
            least = min(other["p50_ms"] for other in alike)
            most = max(other["sentences_per_second"] for other in alike)
            rows.append({**row, "p50_ms": least, "sentences_per_second": most})
    return rows


def _state(scores: Scores, name: str) -> tuple[str, str]:
    """Return the state of an arm, and why it failed; see `ArmOutcome`."""
    plan, done = scores.plan, min(len(scores.seeds(name, task)) for task in scores.tasks)
    if done == plan.comparison.seeds:
        return "complete", ""
    cells = (cell for cell in plan.of_arm(name) if cell.share == 1)
    failures = (failure.error for cell in cells if (failure := failure_of(scores.out, cell)))
    if (error := next(failures, None)) is not None:
        return "failed", error
    return ("stopped" if plan.comparison.race and done >= 2 else "unfinished"), ""


def _behind(standing: Standing) -> Estimate:
    """Return how far an arm is behind the best one."""
    low, high = sorted(-end for end in standing.difference_interval)
    return Estimate(0.0 - standing.difference, low, high)


def describe(arm: Arm, budget: str) -> str:
    """Return in words how an arm comes to its model, and how tasks are learned from it."""
    amount = str(read_budget(budget)) if budget else ""
    ways = {
        "": f"{arm.model} as it is",
        "pretrain": f"{arm.recipe}, pretrained on the text for {amount}",
        "adapt": f"{arm.model}, adapted to the text for {amount}",
        "distill": f"a student of {arm.model}{arm.recipe and f' ({arm.recipe})'}, taught on the text for {amount}",
        "random": f"random weights in the shape of {arm.recipe or arm.model}",
        "student": f"a student ({arm.recipe}) that learns each task from {arm.teacher}",
    }
    changes = ", ".join(f"{key} = {value}" for key, value in {**arm.settings, **arm.task_settings}.items())
    use = "" if arm.teacher else f"; {USES[arm.use]}"
    return f"{ways[arm.way]}{use}{f' ({changes})' if changes else ''}."


def looks_of(scores: Scores) -> list[LookOutcome]:
    """Return first looks, and how well their order agrees with that of the final scores."""
    plan, looks = scores.plan, list[LookOutcome]()
    for task in plan.tasks:
        cells = [cell for cell in plan.of("look") if cell.task == task]
        looked = {
            name: result["score"]
            for cell in cells
            if (result := result_of(scores.out, cell))
            for name in plan.owners[cell.key]
        }
        if not looked:
            continue
        final = {arm: float(scored.scores.mean()) for arm in looked if (scored := scores.of_task(arm, task))}
        order = dict(sorted(looked.items(), key=lambda item: -item[1]))
        looks.append(LookOutcome(task, order, rank_correlation(looked, final)))
    return looks


def rank_correlation(looked: Mapping[str, float], final: Mapping[str, float]) -> float | None:
    """Return how well two orders of arms agree; None if there is none: see `LookOutcome.agreement`."""
    values = np.array([[looked[arm], final[arm]] for arm in final])
    if len(final) < 3 or not np.ptp(values, 0).all():
        return None
    return regression.scores(values[:, 0], values[:, 1])["spearman"] / 100


def _differing(scores: Scores, names: Sequence[str]) -> list[Difference]:
    """Return examples that one of the two best arms gets right and the other does not, with the first seed."""
    if len(names) < 2:
        return []
    differing = []
    for task in scores.tasks:
        wrong = []
        for name in names:
            result = scores.results.get((name, task, 0))
            folder = scores.folders.get((name, task, 0), Path())
            listed = msgspec.json.decode(content_of(folder, MISTAKES, result)) if result else []
            wrong.append({mistake.pop("example"): mistake for mistake in listed})
        for number, name in enumerate(names):
            only = [one for where, one in wrong[number].items() if where not in wrong[1 - number] and "text" in one]
            differing += [Difference(task=task, wrong=name, **mistake) for mistake in only[: SHOWN // 2]]
    return differing


def _cell(out: Path, cell: Cell) -> CellOutcome:
    """Return a cell as the report shows it, with the command that repeats it."""
    result, failure = result_of(out, cell), failure_of(out, cell)
    state = "done" if result else "failed" if failure else "not computed"
    seconds = result["elapsed"] if result else 0.0
    command = rendered(command_of(out, cell), in_command)
    return CellOutcome(cell.name, cell.key, state, seconds, failure.error if failure else "", command)
