"""Is a task with few labels helped by one with many? SICK: entailment from few pairs, relatedness from many others.

For each seed, the pairs of both tasks are drawn anew. MiniLM is fine-tuned on both together and on each alone, by
`unmask multitask --alone`. Scores are on the same test pairs; the difference has a paired interval.
"""

from __future__ import annotations

import json
import random
import tempfile
import warnings
from pathlib import Path
from typing import Any

from common import SEEDS, SHARED, add, minilm, parse

import unmask
from unmask.data.labelled.labelled_file import read_rows

TASKS: dict[str, tuple[str, str, type]] = {
    "entailment": ("classification", "entailment_judgment", str),
    "relatedness": ("regression", "relatedness_score", float),
}
"""Of each task its kind, the column of its labels, and what they are."""
PAIRS = {"entailment": 96, "relatedness": 640}
STEPS, SCORED = 240, 1000


def sick(name: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return the pairs of a file of SICK with their labels, in the same order for each task."""
    found = {}
    for task, (_, column, kind) in TASKS.items():
        columns = {"text": "sentence_A", "text_b": "sentence_B", "label": column}
        rows = [row.values for row in read_rows([SHARED / "pairs/sick" / name], columns=columns, kind="tsv")]
        found[task] = [(row["text"], row["text_b"], kind(row["label"])) for row in rows]
    return found


def main() -> None:
    """Train on both tasks and on each alone, and add the scores to the result."""
    options = parse(__doc__, seeds=SEEDS)
    warnings.simplefilter("ignore", unmask.InputWarning)
    train, test = sick("SICK_train.txt.xz"), sick("SICK_test_annotated.txt.xz")
    for seed in options.seeds:
        left, tables = random.Random(seed).sample(range(len(train["entailment"])), sum(PAIRS.values())), {}
        for name, (kind, *_) in TASKS.items():
            scored = random.Random(0).sample(test[name], min(SCORED, len(test[name])))
            drawn, left = left[: PAIRS[name]], left[PAIRS[name] :]
            parts = {"train": [train[name][index] for index in drawn], "dev": scored}
            tables[name] = {"task": kind, **{part: tuple(zip(*rows, strict=True)) for part, rows in parts.items()}}
        with tempfile.TemporaryDirectory() as folder:
            run, settings = Path(folder) / "run", {"seed": seed, "budget.steps": STEPS}
            unmask.multitask(tables, minilm(), run, alone=True, settings=settings, quiet=True)
            compared = json.loads((run / "alone.json").read_bytes())
        for name, scores in compared.items():
            for way, kept in (("together", ("metric", "interval", "p", "verdict")), ("alone", ("metric",))):
                record = {"score": round(scores[way], 2), **{part: scores[part] for part in kept}}
                add("several_tasks", {"task": name, "examples": PAIRS[name], "seed": seed, "way": way}, record)


if __name__ == "__main__":
    main()
