"""What do default thresholds gain where a label is rare, and what do they cost the other labels?

A draw takes training examples in which a label is rare: one of 100 or of 1,000 examples (negative phrases of SST-2, a
topic of seven against all others), or eight of 24 labels, the most frequent of which has 60 times the examples of the
rarest (modules). All are scored on other texts, weighted so that labels are as frequent there as in training: the F1
of the rare label (or the mean of eight), that of the others, the accuracy and the average precision, by the predictions
of the model and by its most probable labels ("without").

Ways: a logistic regression on the frozen features of MiniLM, by default, with balanced weights, and with thresholds
tuned on a tenth of the training examples; and fine-tuning of all parameters in three epochs ("full").

The default was chosen on splits of the training examples: of SST-2, those of 24,000 phrases, and the test texts are
others.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import few_labels
import numpy as np
from common import add, minilm
from few_labels import Example
from sklearn.metrics import accuracy_score, average_precision_score, f1_score

import unmask

PHRASES, TESTED = 24_000, 3_000
SIZES = {"sst2": 6_000, "topics": 4_000}
"""Numbers of training examples without the rare label."""
RARE = {"sst2": "0", "topics": "graphics"}
TAIL, STEEP = 8, 60
"""Number of rare labels of the modules, and the ratio of the most frequent to the rarest label."""
PROBE = {"probe": True, "budget.epochs": 0, "downstream.normalize": True}
WAYS: dict[str, dict[str, Any]] = {
    "frozen": PROBE,
    "balanced": {**PROBE, "task.weights": "balanced"},
    "tuned": {**PROBE, "task.threshold": "tuned"},
    "full": {"budget.epochs": 3, "task.length": 64},
}
"""Settings of `unmask.finetune`."""


def draw(name: str, ratio: int, seed: int) -> tuple[list[Example], list[Example], set[str]]:
    """Return training examples, test examples and the rare labels."""
    train, test = few_labels.DATA[name]()
    rng = random.Random(seed)
    if name == "sst2":
        seen = set(random.Random(0).sample(train, PHRASES))
        rest = [example for example in train if example not in seen]
        train, test = sorted(seen), random.Random(1).sample(rest, TESTED)
    if name in RARE:
        rare = {RARE[name]}
        train, test = (
            [Example(e.texts, e.label if e.label in rare else "other") for e in part] for part in (train, test)
        )
        counts = {"other": SIZES[name], RARE[name]: max(2, round(SIZES[name] / ratio))}
    else:
        order = rng.sample(labels := sorted({example.label for example in train}), len(labels))
        most = Counter(example.label for example in train)
        steps = {label: STEEP ** (-number / (len(order) - 1)) for number, label in enumerate(order)}
        counts, rare = {label: round(most[label] * steps[label]) for label in order}, set(order[-TAIL:])
    taken: list[Example] = []
    for label, count in counts.items():
        taken += rng.sample([example for example in train if example.label == label], count)
    rng.shuffle(taken)
    return taken, test, rare


def scores(gold: Sequence[str], predicted: Sequence[str], rare: set[str], weights: np.ndarray) -> dict[str, float]:
    """Return the mean F1 of the rare labels and of the others, and the accuracy, times 100."""
    labels = sorted(set(gold))
    f1 = f1_score(gold, predicted, labels=labels, average=None, sample_weight=weights, zero_division=0)
    of = [[value for label, value in zip(labels, f1, strict=True) if (label in rare) == side] for side in (True, False)]
    values = (*map(np.mean, of), accuracy_score(gold, predicted, sample_weight=weights))
    return {name: round(100 * float(v), 2) for name, v in zip(("f1", "f1_others", "accuracy"), values, strict=True)}


def measure(name: str, ratio: int, seed: int, way: str) -> dict[str, Any]:
    """Train on a draw, and return the scores on the test texts."""
    train, test, rare = draw(name, ratio, seed)
    gold, counts = [example.label for example in test], Counter(example.label for example in train)
    present = Counter(gold)
    weights = np.array([counts[label] / present[label] for label in gold])
    options = {} if way == "full" else {"frozen": True, "downstream": "average"}
    columns = [example.texts[0] for example in train], [example.label for example in train]
    with tempfile.TemporaryDirectory() as folder:
        run = unmask.finetune(
            "classification",
            minilm(),
            columns,
            Path(folder) / "run",
            all_examples=True,
            quiet=True,
            settings={"seed": seed, **WAYS[way]},
            **options,  # type: ignore[arg-type]
        )
        predictions = unmask.load(run).predict([example.texts[0] for example in test])
    likely = [max(one.scores, key=lambda label, s=one.scores: s[label]) for one in predictions]  # type: ignore[misc]
    precision = [
        average_precision_score(
            [g == label for g in gold], [p.scores[label] for p in predictions], sample_weight=weights
        )
        for label in rare
    ]
    return {
        **{"data": name, "ratio": ratio, "seed": seed, "way": way, "rare": min(counts.values()), "train": len(train)},
        "average_precision": round(100 * float(np.mean(precision)), 2),
        **scores(gold, [one.label for one in predictions], rare, weights),
        "without": scores(gold, likely, rare, weights),
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", choices=("sst2", "topics", "modules"))
    parser.add_argument("--ratios", nargs="+", type=int, default=[99, 999])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["frozen"])
    arguments = parser.parse_args()
    for name in arguments.data:
        for ratio in [STEEP] if name == "modules" else arguments.ratios:
            for way in arguments.ways:
                for seed in range(arguments.draws):
                    add("rare_labels", measure(name, ratio, seed, way), instead=("data", "ratio", "seed", "way"))


if __name__ == "__main__":
    main()
