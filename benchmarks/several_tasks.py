"""Is a task with few labels helped by one with many? SICK: entailment from few pairs, relatedness from many others.

For each seed, the pairs of both tasks are drawn anew. MiniLM is fine-tuned on both together (`unmask.multitask`), and
on each alone with as many steps as `--alone` says. Scores are on the same test pairs; the difference has a paired
interval.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common import SHARED, add, minilm

import unmask
from unmask.data.labelled.labelled_file import read_rows
from unmask.data.labelled.table import as_sources
from unmask.workflows.multitask.multitask import compare

TASKS = {
    "entailment": ("classification", "entailment_judgment"),
    "relatedness": ("regression", "relatedness_score"),
}


class Pair(NamedTuple):
    """Two sentences, and their label for each task."""

    texts: tuple[str, str]
    labels: dict[str, str]


def sick(name: str) -> list[Pair]:
    """Return the pairs of a file of SICK."""
    columns = {"text": "sentence_A", "text_b": "sentence_B"}
    path = SHARED / "pairs" / "sick" / name
    tables = [read_rows([path], columns={**columns, "label": label}, kind="tsv") for _, label in TASKS.values()]
    return [
        Pair(
            (rows[0].values["text"], rows[0].values["text_b"]),
            {task: row.values["label"] for task, row in zip(TASKS, rows, strict=True)},
        )
        for rows in zip(*tables, strict=True)
    ]


def examples(pairs: Sequence[Pair], task: str) -> tuple[list[str], list[str], list[Any]]:
    """Return pairs and their labels of a task, as `unmask.finetune` takes them from memory."""
    labels: list[Any] = [pair.labels[task] for pair in pairs]
    return (
        [pair.texts[0] for pair in pairs],
        [pair.texts[1] for pair in pairs],
        list(map(float, labels)) if task == "relatedness" else labels,
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", type=int, default=96, help="pairs with entailment labels")
    parser.add_argument("--many", type=int, default=640, help="pairs with relatedness scores")
    parser.add_argument("--steps", type=int, default=240, help="steps of the run on both")
    parser.add_argument("--alone", type=int, nargs=2, default=[120, 240], help="steps of each alone")
    parser.add_argument("--scored", type=int, default=1000, help="test pairs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", unmask.InputWarning)
    train = sick("SICK_train.txt.xz")
    test = sick("SICK_test_annotated.txt.xz")
    test = random.Random(0).sample(test, min(arguments.scored, len(test)))
    for seed in arguments.seeds:
        drawn = random.Random(seed).sample(train, arguments.few + arguments.many)
        parts = {"entailment": drawn[: arguments.few], "relatedness": drawn[arguments.few :]}
        run(parts, test, seed, arguments)


def run(parts: dict[str, list[Pair]], test: list[Pair], seed: int, arguments: argparse.Namespace) -> None:
    """Train on both tasks and on each alone, and add the scores to the result."""
    tables: dict[str, dict[str, Any]] = {
        name: {"task": kind, "train": examples(parts[name], name), "dev": examples(test, name)}
        for name, (kind, _) in TASKS.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        settings = {"seed": seed, "budget.steps": arguments.steps}
        models = unmask.multitask(tables, minilm(), Path(folder) / "both", settings=settings, quiet=True)
        seconds = {"together": time.perf_counter() - start}
        for (name, table), steps in zip(tables.items(), arguments.alone, strict=True):
            start = time.perf_counter()
            own = unmask.finetune(
                table["task"],
                minilm(),
                table["train"],
                Path(folder) / name,
                dev=table["dev"],
                settings={"seed": seed, "budget.steps": steps},
                quiet=True,
            )
            seconds["alone"] = time.perf_counter() - start
            together, alone = unmask.load(models / name), unmask.load(own)
            task = together.model.task
            assert task is not None
            held = task.read(as_sources(table["dev"]), columns={})
            result = compare(together, alone, held)
            shared = {"task": name, "examples": len(parts[name]), "seed": seed, "metric": result.metric}
            for way, score in (("together", result.together), ("alone", result.alone)):
                record = shared | {"way": way, "score": round(score, 2), "seconds": round(seconds[way], 1)}
                if way == "together":
                    low, high = result.interval
                    record |= {"interval": [round(low, 2), round(high, 2)], "p": result.p, "verdict": result.verdict}
                add("several_tasks", record, instead=("task", "examples", "seed", "way"))


if __name__ == "__main__":
    main()
