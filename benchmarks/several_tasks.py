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

TASKS = {
    "entailment": ("classification", "entailment_judgment"),
    "relatedness": ("regression", "relatedness_score"),
}
Pair = tuple[str, str, dict[str, Any]]
"""Two sentences, and their label for each task."""


def sick(name: str) -> list[Pair]:
    """Return the pairs of a file of SICK."""
    columns = {"text": "sentence_A", "text_b": "sentence_B"}
    path = SHARED / "pairs" / "sick" / name
    parts = [read_rows([path], columns={**columns, "label": label}, kind="tsv") for _, label in TASKS.values()]
    labels = [
        {"entailment": one.values["label"], "relatedness": float(two.values["label"])}
        for one, two in zip(*parts, strict=True)
    ]
    return [(row.values["text"], row.values["text_b"], own) for row, own in zip(parts[0], labels, strict=True)]


def examples(pairs: list[Pair], task: str) -> tuple[list[str], list[str], list[Any]]:
    """Return pairs and their labels of a task, as `unmask.finetune` takes them from memory."""
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs], [pair[2][task] for pair in pairs]


def main() -> None:
    """Train on both tasks and on each alone, and add the scores to the result."""
    options = parse(__doc__, few=96, many=640, steps=240, scored=1000, seeds=SEEDS)
    warnings.simplefilter("ignore", unmask.InputWarning)
    train, test = sick("SICK_train.txt.xz"), sick("SICK_test_annotated.txt.xz")
    test = random.Random(0).sample(test, min(options.scored, len(test)))
    for seed in options.seeds:
        pairs = random.Random(seed).sample(train, options.few + options.many)
        parts = {"entailment": pairs[: options.few], "relatedness": pairs[options.few :]}
        tables = {
            name: {"task": kind, "train": examples(parts[name], name), "dev": examples(test, name)}
            for name, (kind, _) in TASKS.items()
        }
        with tempfile.TemporaryDirectory() as folder:
            settings = {"seed": seed, "budget.steps": options.steps}
            unmask.multitask(tables, minilm(), Path(folder) / "run", alone=True, settings=settings, quiet=True)
            compared = json.loads((Path(folder) / "run" / "alone.json").read_bytes())
        for name, scores in compared.items():
            for way in ("together", "alone"):
                record = {"metric": scores["metric"], "score": round(scores[way], 2)}
                if way == "together":
                    record |= {part: scores[part] for part in ("interval", "p", "verdict")}
                add("several_tasks", {"task": name, "examples": len(parts[name]), "seed": seed, "way": way}, record)


if __name__ == "__main__":
    main()
