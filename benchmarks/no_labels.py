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
    record = {"accuracy": result["metrics"]["accuracy"], "interval": interval, "chance": 100 / 3}
    add("no_labels", {"data": "snli", "labels": "trained on"}, record)
    return str(run)


def measure(
    data: str, model: str, examples: Sequence[Labelled], names: dict[str, str], template: str = HYPOTHESIS
) -> None:
    """Add the accuracy of the labels by their names.

    Args:
        data: name of the data set.
        model: the model of entailment.
        examples: the texts with their labels.
        names: the labels by the names that are predicted.
        template: see `unmask.predict`.
    """
    texts = [example.text for example in examples]
    predictions = unmask.predict(model, texts=texts, labels=list(names), template=template, quiet=True)
    right = sum(names[guess.label] == one.label for guess, one in zip(predictions, examples, strict=True))
    low, high = wilson(right / len(texts), len(texts))
    chance = 100 * max(Counter(example.label for example in examples).values()) / len(texts)
    record = {"accuracy": 100 * right / len(texts), "interval": [100 * low, 100 * high], "chance": chance}
    add("no_labels", {"data": data, "labels": ", ".join(names), "template": template}, record)


def main() -> None:
    """Train and measure, and write benchmarks/results/no_labels.json."""
    model = entailment(parse(__doc__, runs=RUNS).runs / "no_labels")
    phrases, (_, paragraphs) = read_texts(SST2_DEV), topics()
    measure("sst2", model, phrases, {"negative": "0", "positive": "1"})
    measure("sst2", model, phrases, {"bad": "0", "good": "1"}, template="This movie is {}.")
    measure("topics", model, paragraphs, {example.label: example.label for example in paragraphs})


if __name__ == "__main__":
    main()
