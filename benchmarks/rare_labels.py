"""What do thresholds gain where a label is rare, and what do they cost the other labels?

A draw takes training examples in which a label is rare: one of 100 or of 1,000 examples (negative phrases of SST-2, a
topic of seven against all others), or eight of 24 labels, the most frequent of which has 60 times the examples of the
rarest (modules). Other texts are weighted so that labels are as frequent there as in training. Scores are the F1 of
the rare label (the mean of eight), that of the others, the accuracy, and the average precision of the rare label.

The ways are a logistic regression (scikit-learn, C = 10) on the mean vectors of MiniLM: the most probable label
("without"), the thresholds of the default ("default"), balanced weights ("balanced"), and thresholds that are tuned on
a tenth of the training examples ("tuned"). With `--full`, MiniLM is fine-tuned by default instead, without and with
the thresholds of the default, and with balanced weights.

The default was chosen on splits of the training examples: of SST-2, those of 24,000 phrases, and the test texts are
others.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import RUNS, SEEDS, add, minilm, parse
from labelled import SST2, Labelled, embed, parted, read_texts
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, average_precision_score, f1_score

import unmask
from unmask.data.labelled.labelled_file import Row
from unmask.tasks.classification import Classification, Prediction

PHRASES, TESTED = 24_000, 3_000
SIZES = {"sst2": 8_000, "topics": 4_000}
"""Numbers of training examples without the rare label."""
RARE = {"sst2": "0", "topics": "network"}
TAIL, STEEP = 8, 60
"""Number of rare labels of the modules, and the ratio of the most frequent to the rarest label."""
RATIOS = {"sst2": (99, 999), "topics": (99, 999), "modules": (STEEP,)}


def texts_of(name: str) -> tuple[list[Labelled], list[Labelled]]:
    """Return the examples to draw from, and those to test on."""
    if name != "sst2":
        train, test = parted(name)
        return random.Random(0).sample(train, len(train)), test
    rows = read_texts(SST2)
    order = random.Random(0).sample(rows, PHRASES)
    seen = set(order)
    return order, random.Random(1).sample([example for example in rows if example not in seen], TESTED)


def draw(name: str, gold: np.ndarray, ratio: int, seed: int) -> tuple[np.ndarray, list[str]]:
    """Return the indices of training examples, and the rare labels, given the labels of all examples."""
    rng, most = np.random.default_rng(seed), Counter(gold.tolist())
    if name in RARE:
        rare, others = [RARE[name]], SIZES[name] / (most.total() - most[RARE[name]])
        counts = {label: int(number * others) for label, number in most.items()}
        counts[RARE[name]] = max(4, round(SIZES[name] / ratio))
    else:
        order = rng.permutation(sorted(most)).tolist()
        rare = order[-TAIL:]
        counts = {label: round(most[label] * STEEP ** (-n / (len(order) - 1))) for n, label in enumerate(order)}
    return np.concatenate([rng.permutation(np.flatnonzero(gold == label))[:n] for label, n in counts.items()]), rare


def ways(vectors: np.ndarray, gold: Sequence[str], test: np.ndarray, seed: int) -> dict[str, tuple[Any, np.ndarray]]:
    """Return, by way, the probabilities of the test texts, and the predicted labels."""
    rows = [Row({"text": f"{number}", "label": label}, "", number) for number, label in enumerate(gold)]
    labels = tuple(sorted(set(gold)))

    def fit(rows: Sequence[Row], **options: Any) -> Any:
        model = LogisticRegression(C=10, max_iter=1000, **options)
        return model.fit(vectors[[row.line for row in rows]], [row.values["label"] for row in rows])

    def decided(task: Classification, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return probabilities, decide(task, probabilities, labels)

    probabilities = fit(rows).predict_proba(test)
    task = Classification(threshold="tuned").settle(rows, labels)
    train, aside = task.hold_out(rows, seed)
    part = fit(train)
    scores = part.predict_proba(vectors[[row.line for row in aside]]).tolist()
    task = task.tune(aside, [Prediction("", "", dict(zip(labels, each, strict=True))) for each in scores])
    return {
        "without": decided(Classification(), probabilities),
        "default": decided(Classification().settle(rows, labels), probabilities),
        "balanced": decided(Classification(), fit(rows, class_weight="balanced").predict_proba(test)),
        "tuned": decided(task, part.predict_proba(test)),
    }


def decide(task: Classification, probabilities: np.ndarray, labels: Sequence[str]) -> np.ndarray:
    """Return the predicted labels, by the thresholds of a task."""
    thresholds = task.threshold if isinstance(task.threshold, tuple) else 1.0
    return np.array(labels)[(probabilities / thresholds).argmax(1)]


def fine_tuned(
    texts: Sequence[str], gold: Sequence[str], test: Sequence[str], folder: Path
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return what `ways` does, of MiniLM fine-tuned by default and with balanced weights."""
    found = dict[str, tuple[np.ndarray, np.ndarray]]()
    for way, settings in (("default", {}), ("balanced", {"task.weights": "balanced"})):
        data, run = {"text": texts, "label": gold}, folder / way
        if not (run / "model").exists():
            unmask.finetune("classification", minilm(), data, run, settings=settings, frozen=False, quiet=True)
        predictor = unmask.load(run, task="classification")
        labels, task = sorted(set(gold)), predictor.model.task
        assert isinstance(task, Classification) and list(predictor.model.labels) == labels
        probabilities = np.array([[one.scores[label] for label in labels] for one in predictor.predict(test)])
        if way == "default":
            found["without"] = probabilities, decide(Classification(), probabilities, labels)
        found[way] = probabilities, decide(task, probabilities, labels)
    return found


def scores(
    gold: np.ndarray, predicted: np.ndarray, probabilities: np.ndarray, counts: Counter[str], rare: Sequence[str]
) -> dict[str, float]:
    """Return the scores of test texts, times 100, weighted so that labels are as frequent as in training."""
    labels, present = sorted(counts), Counter(gold.tolist())
    weights = np.array([counts[label] / present[label] for label in gold.tolist()])
    f1 = f1_score(gold, predicted, labels=labels, average=None, sample_weight=weights)
    is_rare = np.array([label in rare for label in labels])
    precision = [
        average_precision_score(gold == labels[n], probabilities[:, n], sample_weight=weights)
        for n in is_rare.nonzero()[0]
    ]
    values = {
        "average_precision": np.mean(precision),
        "f1": f1[is_rare].mean(),
        "f1_others": f1[~is_rare].mean(),
        "accuracy": accuracy_score(gold, predicted, sample_weight=weights),
    }
    return {name: round(100 * float(value), 2) for name, value in values.items()}


def embedded(name: str, folder: Path) -> tuple[np.ndarray, ...]:
    """Return the labels and the vectors of the examples to draw from, and of those to test on."""
    path = folder / f"{name}.npz"
    if not path.exists():
        arrays = list[np.ndarray]()
        for examples in texts_of(name):
            rest = name in RARE
            labels = ["other" if rest and example.label != RARE[name] else example.label for example in examples]
            arrays += [np.array(labels), embed([example.text for example in examples])]
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, *arrays)
    return tuple(np.load(path).values())


def main() -> None:
    """Run the benchmark; vectors are kept."""
    options = parse(__doc__, RATIOS, seeds=SEEDS, runs=RUNS, full=False)
    for name in options.names:
        gold, vectors, known, test = embedded(name, options.runs / "rare_labels")
        for ratio in RATIOS[name]:
            for seed in options.seeds:
                taken, rare = draw(name, gold, ratio, seed)
                labels = gold[taken].tolist()
                if options.full:
                    sources, tests = ([example.text for example in part] for part in texts_of(name))
                    folder = options.runs / "rare_labels" / f"{name}-{ratio}-{seed}"
                    found = fine_tuned([sources[index] for index in taken], labels, tests, folder)
                else:
                    found = ways(vectors[taken], labels, test, seed)
                counts = Counter(labels)
                for way, (probabilities, predicted) in found.items():
                    record = {"rarest": min(counts.values()), **scores(known, predicted, probabilities, counts, rare)}
                    key = {
                        "data": name,
                        "ratio": ratio,
                        "seed": seed,
                        "learned": "full" if options.full else "logistic",
                    }
                    add("rare_labels", {**key, "way": way}, record)


if __name__ == "__main__":
    main()
