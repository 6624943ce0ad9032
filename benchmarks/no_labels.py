"""How good is classification by names of labels (`unmask predict --labels`) with a small model of entailment?

MiniLM (a sentence-embedding model) is fine-tuned on 2,000 pairs of SNLI, and scored on test pairs. It then labels the
dev set of SST-2 and the test paragraphs of the demo's topics by the names of their labels alone. Chance is the share of
the most frequent label.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from common import SHARED, add, minilm
from topics import topics

import unmask
from unmask.data.labelled.labelled_file import read_rows
from unmask.inference.zero_shot import HYPOTHESIS
from unmask.metrics.intervals import wilson

COLUMNS = {"text": "sentence1", "text_b": "sentence2", "label": "gold_label"}
EPOCHS, SUFFIX = 2, ".jsonl.xz"


def entailment(folder: Path) -> str:
    """Return a model of entailment, which is trained unless it is in the folder, and add its accuracy."""
    snli, run = SHARED / "pairs" / "snli", folder / "nli"
    if not (run / "model").exists():
        unmask.finetune(
            *("classification", minilm()),
            train=snli / f"train_2000{SUFFIX}",
            columns=COLUMNS,
            all_examples=True,
            settings={"budget.epochs": EPOCHS},
            out=run,
        )
    result = unmask.evaluate(run, snli / f"test_2000{SUFFIX}", columns=COLUMNS)
    interval = result["intervals"]["accuracy"]
    record = {"data": "snli", "accuracy": result["metrics"]["accuracy"], "interval": interval, "chance": 100 / 3}
    add("no_labels", {**record, "labels": "trained on"}, instead=("data", "labels"))
    return str(run)


def measure(
    data: str, model: str, texts: Sequence[str], gold: Sequence[str], names: dict[str, str], template: str = HYPOTHESIS
) -> None:
    """Add the accuracy of the labels by their names.

    Args:
        data: name of the data set.
        model: the model of entailment.
        texts: the texts.
        gold: their labels.
        names: the labels by the names that are predicted.
        template: see `unmask.predict`.
    """
    predictions = unmask.predict(model, texts=texts, labels=list(names), template=template, quiet=True)
    right = sum(names[prediction.label] == label for prediction, label in zip(predictions, gold, strict=True))
    low, high = wilson(right / len(gold), len(gold))
    record = {"data": data, "labels": ", ".join(names), "template": template, "accuracy": 100 * right / len(gold)}
    chance = 100 * max(Counter(gold).values()) / len(gold)
    record |= {"interval": [100 * low, 100 * high], "chance": chance}
    add("no_labels", record, instead=("data", "labels", "template"))


def main() -> None:
    """Train and measure, and write benchmarks/results/no_labels.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="folder of the model, which is kept there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = entailment(options.runs or Path(scratch))
        rows = read_rows([SHARED / "classification" / "sst2" / "dev.tsv"], columns={"text": "sentence"})
        texts, gold = [row.values["text"] for row in rows], [row.values["label"] for row in rows]
        measure("sst2", model, texts, gold, {"negative": "0", "positive": "1"})
        measure("sst2", model, texts, gold, {"bad": "0", "good": "1"}, template="This movie is {}.")
        _, test = topics()
        names = {example.label: example.label for example in test}
        measure("topics", model, [example.text for example in test], [example.label for example in test], names)


if __name__ == "__main__":
    main()
