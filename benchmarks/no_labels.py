"""How good is classification by names of labels (`unmask predict --labels`) with a small model of entailment?

MiniLM (a sentence-embedding model) is fine-tuned on 2,000 pairs of SNLI, and scored on test pairs. It then labels the
dev set of SST-2 and the test paragraphs of the demo's topics by the names of their labels alone. Chance is the share of
the most frequent label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from common import RUNS, SHARED, add, minilm, parse
from labelled import SST2_DEV, Labelled, read_texts, topics

import unmask
from unmask.inference.zero_shot import HYPOTHESIS
from unmask.metrics.intervals import wilson

TRAIN, TEST = "pairs/snli/train_2000.jsonl.xz", "pairs/snli/test_2000.jsonl.xz"
EPOCHS = {"budget.epochs": 2}


def entailment(run: Path) -> None:
    """Train a model of entailment where that is not done, and add its accuracy."""
    if not (run / "model").exists():
        model, train = minilm(), SHARED / TRAIN
        unmask.finetune("classification", model, train, run, all_examples=True, settings=EPOCHS)
    result = unmask.evaluate(run, SHARED / TEST)
    interval = result["intervals"]["accuracy"]
    record = {"accuracy": result["metrics"]["accuracy"], "interval": interval, "chance": 100 / 3}
    add("no_labels", {"data": "snli", "labels": "trained on"}, record)


def measure(
    data: str, model: Path, examples: Sequence[Labelled], names: dict[str, str], template: str = HYPOTHESIS
) -> None:
    """Add the accuracy of the labels by their names.

    Args:
        data: name of the data set.
        model: the model of entailment.
        examples: the texts with their labels.
        names: the labels by the names that are predicted.
        template: see `unmask.predict`.
    """
    texts, labels = zip(*examples, strict=True)
    predictions = unmask.predict(model, texts=list(texts), labels=list(names), template=template, quiet=True)
    right = sum(names[one.label] == label for one, label in zip(predictions, labels, strict=True)) / len(texts)
    interval = [100 * bound for bound in wilson(right, len(texts))]
    record = {"accuracy": 100 * right, "interval": interval, "chance": 100 * max(Counter(labels).values()) / len(texts)}
    add("no_labels", {"data": data, "labels": ", ".join(names), "template": template}, record)


def main() -> None:
    """Train and measure, and write benchmarks/results/no_labels.json."""
    run = parse(__doc__, runs=RUNS).runs / "no_labels" / "nli"
    entailment(run)
    phrases, (_, paragraphs) = read_texts(SST2_DEV), topics()
    measure("sst2", run, phrases, {"negative": "0", "positive": "1"})
    measure("sst2", run, phrases, {"bad": "0", "good": "1"}, template="This movie is {}.")
    measure("topics", run, paragraphs, {label: label for _, label in paragraphs})


if __name__ == "__main__":
    main()
