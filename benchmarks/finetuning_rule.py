"""Which learning rate and how many passes does fine-tuning need? The rule of `unmask.finetuning.rule`.

Every run trains and is scored on splits of TRAINING data alone: no dev or test set is looked at. SST-2's training set
holds sentences and the phrases that they are made of: its split holds whole sentences out, and none of their phrases
of more than two words is trained on.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from pathlib import Path

from common import HERE, SHARED, add, minilm

import unmask
from unmask.finetuning.rule import defaults
from unmask.labelled.labelled_file import read_rows
from unmask.model import load_model

WHOLE = 15
"""A phrase of SST-2 with so many words counts as a sentence."""
REVIEWS = HERE.parent / "src" / "unmask" / "samples" / "reviews" / "train.tsv"
DATA = {
    "reviews": ([REVIEWS], {}, "accuracy", 150),
    "sst2": ([SHARED / "classification/sst2/train.tsv.xz"], {}, "accuracy", 2000),
    "cola": (
        [SHARED / "classification/cola/in_domain_train.tsv"],
        {"text": "3", "label": "1"},
        "matthews_correlation",
        1500,
    ),
}


def split(name: str, examples: int, folder: Path) -> tuple[Path, Path]:
    """Write a seeded split of a training set as two files."""
    paths, columns, _, dev = DATA[name]
    rows = [(row.values["text"].strip(), row.values["label"]) for row in read_rows(paths, columns=columns)]
    random.Random(0).shuffle(rows)
    train, held = rows[dev:], rows[:dev]
    if name == "sst2":
        sentences = [row for row in rows if len(row[0].split()) >= WHOLE]
        held = sentences[:dev]
        inside = {" ".join(words) for text, _ in held for words in _parts(text.split())}
        train = [(text, label) for text, label in rows if text not in inside]
    files = folder / f"{name}-train.tsv", folder / f"{name}-dev.tsv"
    for path, part in zip(files, (train[:examples], held), strict=True):
        lines = [f"{text}\t{label}\n" for text, label in part]
        path.write_text("text\tlabel\n" + "".join(lines), encoding="utf8")
    return files


def _parts(words: list[str]) -> list[list[str]]:
    """Return all stretches of more than two words."""
    return [words[i:j] for i in range(len(words)) for j in range(i + 3, len(words) + 1)]


def main() -> None:
    """Run what is asked for and add it to the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=DATA, required=True)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--model", default="minilm", help="minilm or random:RECIPE")
    parser.add_argument("--factors", type=float, nargs="+", default=[0.5, 1, 2], help="of the rule's learning rate")
    parser.add_argument("--passes", type=float, nargs="+", default=[3])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    source = minilm() if options.model == "minilm" else options.model
    tokenizer = None if options.model == "minilm" else minilm()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, dev = split(options.data, options.examples, folder)
        examples = len(train.read_text(encoding="utf8").splitlines()) - 1
        settings = load_model(source, tokenizer=tokenizer).encoder.settings
        rule = defaults("classification", settings, examples, pretrained=tokenizer is None)
        rate = rule["optimizer"]["learning_rate"]  # type: ignore[index]
        for seed in options.seeds:
            for factor in options.factors:
                for passes in options.passes:
                    begun = time.time()
                    unmask.finetune(
                        "classification",
                        source,
                        [train],
                        folder / "run",
                        dev=[dev],
                        tokenizer=tokenizer,
                        settings={
                            "optimizer.learning_rate": factor * rate,
                            "budget.epochs": passes,
                            "seed": seed,
                        },
                        quiet=True,
                    )
                    metrics = json.loads((folder / "run" / "dev.json").read_bytes())["metrics"]
                    shutil.rmtree(folder / "run")
                    run = {
                        "data": options.data,
                        "model": options.model,
                        "examples": examples,
                        "width": settings.width,
                        "learning_rate": factor * rate,
                        "factor": factor,
                        "passes": passes,
                        "seed": seed,
                        "score": metrics[DATA[options.data][2]],
                        "seconds": round(time.time() - begun),
                    }
                    add("finetuning_rule", run)


if __name__ == "__main__":
    main()
