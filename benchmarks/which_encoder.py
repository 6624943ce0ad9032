"""Which encoder? A comparison of the family, a checkpoint and random weights, by `unmask compare`, as a user runs it.

What is compared says which_encoder.toml: what each arm may spend on the text, three tasks, three seeds. Of the training
data each task has the first examples; the test data are SST-2's and SICK's small sets, and sentences of CoNLL-2003's
test set. A record for each arm and task is added to benchmarks/results/which_encoder.json; the report is in
runs/which_encoder. An interrupted comparison continues, and finished cells are not computed again.
"""

from __future__ import annotations

import argparse
import lzma
from pathlib import Path
from typing import Any

from common import HERE, SHARED, add, minilm

import unmask

EXAMPLES = {"sentiment": 500, "entailment": 500, "entities": 250}
TESTED = 500
"""Number of sentences of the entities' test set."""


def lines_of(name: str) -> list[str]:
    """Return the lines of a compressed file of shared data."""
    with lzma.open(SHARED / name, "rt", encoding="utf8") as file:
        return file.read().split("\n")


def write_files(folder: Path) -> None:
    """Write the first training examples of each task, and the first test sentences of the entities."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"sentiment": "classification/sst2/train.tsv.xz", "entailment": "pairs/sick/SICK_train.txt.xz"}
    for task, name in files.items():
        lines = lines_of(name)[: EXAMPLES[task] + 1]
        (folder / f"{task}.tsv").write_text("\n".join(lines) + "\n", encoding="utf8")
    for name, part, count in (("entities", "train", EXAMPLES["entities"]), ("entities-test", "testb", TESTED)):
        sentences = "\n".join(lines_of(f"ner/conll2003/eng.{part}.xz")).split("\n\n")[:count]
        (folder / f"{name}.conll").write_text("\n\n".join(sentences) + "\n", encoding="utf8")


def records(outcome: Any) -> list[dict[str, Any]]:
    """Return a record for each arm and task, and for the mean over tasks."""
    made = []
    for rank, arm in enumerate(outcome.arms, 1):
        cost = {
            "rank": rank,
            "best": arm.name in outcome.best,
            "parameters": arm.parameters,
            "latency_ms": arm.fastest,
            "engine": arm.engine,
            "text_seconds": arm.trained_seconds,
            "text_tokens": arm.trained_tokens,
            "learning_seconds": arm.learning_seconds,
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
    """Run the comparison, and add its records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE.parent / "runs" / "which_encoder")
    parser.add_argument("--arms", nargs="*", help="only these")
    parser.add_argument("--toy", action="store_true", help="two arms with few tokens and one seed")
    options = parser.parse_args()
    folder = options.out / "files"
    write_files(folder)
    text = (HERE / "which_encoder.toml").read_text(encoding="utf8")
    news = SHARED / "text" / "wikinews" / "train.jsonl.xz"
    if options.toy:
        excerpt = folder / "news.jsonl"
        excerpt.write_text("\n".join(lines_of("text/wikinews/train.jsonl.xz")[:300]) + "\n", encoding="utf8")
        news = excerpt
    for name, value in {"text": news, "shared": SHARED, "folder": folder, "minilm": minilm()}.items():
        text = text.replace("{" + name + "}", str(value))
    text = "\n".join(line for line in text.split("\n") if " = { " not in line or wanted(line, options.arms))
    if options.toy:
        text = text.replace('"6e12flop"', '"20ktok"').replace("seeds = 3", "seeds = 1")
    (folder / "comparison.toml").write_text(text, encoding="utf8")
    outcome = unmask.compare(folder / "comparison.toml", out=options.out / "comparison")
    for record in records(outcome):
        add("which_encoder", record, instead=["arm", "task"])
    print("\n".join(outcome.recommendation))


def wanted(line: str, arms: list[str] | None) -> bool:
    """Return whether a line of the file is not that of an arm which is left out."""
    return not arms or line.partition(" ")[0] in arms or line.startswith("columns")


if __name__ == "__main__":
    main()
