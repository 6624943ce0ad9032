"""How much is learned from a few labels? The default of fine-tuning beside other ways from the same checkpoint.

A draw takes the same number of examples of each label from the training examples. The ways: the default of
`unmask.finetune`; all parameters ("full"); a logistic regression on the mean vectors of the checkpoint
(scikit-learn, C = 1); SetFit (its defaults: 20 pairs for each text, one epoch; install setfit first). Scores are on 400
test examples; with `--split train`, on training examples that no draw has, by which the rule was chosen.

All start from MiniLM, a sentence-embedding model, which was trained on the texts of SNLI.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import common
import numpy as np
from common import SHARED, add, minilm, read
from topics import TOPICS, paragraphs_by_topic

import unmask
from unmask.data.labelled.labelled_file import read_rows
from unmask.metrics.classification import calibration_error

SCORED = 400
MODULES = 24
HELD = 2_000
"""Training examples that no draw takes, with `--split train`."""


class Example(NamedTuple):
    """A text, or a pair of texts, and its label."""

    texts: tuple[str, ...]
    label: str


def rows(folder: str, *names: str, **columns: str) -> list[Example]:
    """Return the examples of files in shared data."""
    read = read_rows([SHARED / folder / name for name in names], columns=columns)
    texts = ("text", "text_b")
    return [Example(tuple(row.values[t] for t in texts if t in row.values), row.values["label"]) for row in read]


def sst2() -> tuple[list[Example], list[Example]]:
    """Phrases of film reviews, two labels."""
    folder = "classification/sst2"
    return rows(folder, "train.tsv.xz", text="sentence"), rows(folder, "dev.tsv", text="sentence")


def chnsenticorp() -> tuple[list[Example], list[Example]]:
    """Chinese reviews, two labels."""
    folder = "classification/chnsenticorp"
    return rows(folder, "train.tsv.xz", text="text_a"), rows(folder, "test.tsv", text="text_a")


def snli() -> tuple[list[Example], list[Example]]:
    """Pairs of sentences, three labels."""
    folder = "pairs/snli"
    return rows(folder, "train_2000.jsonl.xz"), rows(folder, "dev_1000.jsonl.xz")


def sick() -> tuple[list[Example], list[Example]]:
    """Pairs of sentences, three labels; MiniLM was not trained on them."""
    columns = {"text": "sentence_A", "text_b": "sentence_B", "label": "entailment_judgment"}
    folder = "pairs/sick"
    return rows(folder, "SICK_train.txt.xz", **columns), rows(folder, "SICK_test_annotated.txt.xz", **columns)


def topics() -> tuple[list[Example], list[Example]]:
    """Paragraphs of the standard library, seven topics."""
    return _parted(paragraphs_by_topic())


def modules() -> tuple[list[Example], list[Example]]:
    """Paragraphs of the 24 modules of the standard library that have most of them."""
    texts = paragraphs_by_topic(topics={name: name for names in TOPICS.values() for name in names.split()})
    most = sorted(texts, key=lambda name: -len(texts[name]))[:MODULES]
    return _parted({name: texts[name] for name in most})


def _parted(texts: dict[str, list[str]]) -> tuple[list[Example], list[Example]]:
    """Return three quarters of the texts of each label, and the others."""
    parts = [(label, own, len(own) // 4) for label, own in texts.items()]
    test = [Example((text,), label) for label, own, quarter in parts for text in own[:quarter]]
    train = [Example((text,), label) for label, own, quarter in parts for text in own[quarter:]]
    return train, test


DATA: dict[str, Callable[[], tuple[list[Example], list[Example]]]] = {
    "sst2": sst2,
    "chnsenticorp": chnsenticorp,
    "snli": snli,
    "sick": sick,
    "topics": topics,
    "modules": modules,
}


def draw(train: Sequence[Example], each: int, seed: int) -> list[Example]:
    """Return as many random examples of each label."""
    rng = random.Random(seed)
    of_label: dict[str, list[Example]] = {}
    for example in train:
        of_label.setdefault(example.label, []).append(example)
    taken = [one for label in sorted(of_label) for one in rng.sample(of_label[label], min(each, len(of_label[label])))]
    rng.shuffle(taken)
    return taken


Probabilities = np.ndarray
Way = Callable[[Sequence[Example], Sequence[Example], Sequence[str], int], tuple[Probabilities, float]]
"""Learns from examples; returns the probability of each label of others, and the seconds of learning."""


def finetuned(settings: dict[str, Any] | None = None, **options: Any) -> Way:
    """Return a way by `unmask.finetune`."""

    def way(
        train: Sequence[Example], test: Sequence[Example], labels: Sequence[str], seed: int
    ) -> tuple[Probabilities, float]:
        columns = [*zip(*(example.texts for example in train), strict=True)]
        examples = (*map(list, columns), [example.label for example in train])
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            run = unmask.finetune(
                "classification",
                minilm(),
                examples,
                Path(folder) / "run",
                all_examples=True,
                quiet=True,
                settings={"seed": seed, **(settings or {})},
                **options,
            )
            seconds = time.perf_counter() - start
            model = unmask.load(run)
        predictions = model.predict(*([example.texts[part] for example in test] for part in range(len(test[0].texts))))
        return np.array([[one.scores[label] for label in labels] for one in predictions]), seconds

    return way


@cache
def embedded(texts: tuple[str, ...]) -> np.ndarray:
    """Return the mean vectors of texts, (texts, width)."""
    return unmask.load(minilm()).embed(list(texts))


def logistic(
    train: Sequence[Example], test: Sequence[Example], labels: Sequence[str], seed: int
) -> tuple[Probabilities, float]:
    """Logistic regression on mean vectors; of pairs, on the two vectors, their difference and their product."""
    from sklearn.linear_model import LogisticRegression

    def vectors(examples: Sequence[Example]) -> np.ndarray:
        parts = [embedded(texts) for texts in zip(*(example.texts for example in examples), strict=True)]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([*parts, np.abs(parts[0] - parts[1]), parts[0] * parts[1]], 1)

    start = time.perf_counter()
    fitted = LogisticRegression(max_iter=1000).fit(vectors(train), [labels.index(one.label) for one in train])
    seconds = time.perf_counter() - start
    return fitted.predict_proba(vectors(test)), seconds


def setfit(
    train: Sequence[Example], test: Sequence[Example], labels: Sequence[str], seed: int
) -> tuple[Probabilities, float]:
    """SetFit with its defaults; a pair is one text, its parts separated by [SEP]."""
    from datasets import Dataset  # type: ignore[import-untyped,import-not-found,unused-ignore]
    from setfit import SetFitModel, Trainer, TrainingArguments  # type: ignore[import-untyped,import-not-found,unused-ignore]

    texts, others = ([" [SEP] ".join(one.texts) for one in part] for part in (train, test))
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        model = SetFitModel.from_pretrained(minilm())
        arguments = TrainingArguments(
            folder, batch_size=16, num_epochs=1, num_iterations=20, seed=seed, report_to="none", save_strategy="no"
        )
        examples = Dataset.from_dict({"text": texts, "label": [labels.index(one.label) for one in train]})
        Trainer(model=model, args=arguments, train_dataset=examples).train()
        seconds = time.perf_counter() - start
    return np.asarray(model.predict_proba(others)), seconds


WAYS: dict[str, Way] = {
    "default": finetuned(),
    "frozen": finetuned(
        {"probe": True, "budget.epochs": 0, "downstream.normalize": True}, frozen=True, downstream="average"
    ),
    "full": finetuned(frozen=False),
    "logistic": logistic,
    "setfit": setfit,
}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", choices=DATA)
    parser.add_argument("--each", nargs="+", type=int, default=[8, 64], help="examples of each label")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["default", "full", "logistic"])
    parser.add_argument("--split", choices=("train", "test"), default="test", help="what is scored on")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", unmask.InputWarning)
    keys = ("data", "split", "each", "seed", "way")
    for name in arguments.data:
        train, test = DATA[name]()
        if arguments.split == "train":
            order = random.Random(0).sample(train, len(train))
            held = min(HELD, len(train) // 2)
            train, test = order[held:], order[:held]
        test = random.Random(0).sample(test, min(SCORED, len(test)))
        labels = sorted({example.label for example in train})
        gold = np.array([labels.index(example.label) for example in test])
        for seed in range(arguments.draws):
            for each in arguments.each:
                for way in arguments.ways:
                    runs = read(common.RESULTS / "few_labels.json").get("runs", [])
                    known = [tuple(run[key] for key in keys) for run in runs]
                    if (name, arguments.split, each, seed, way) in known:
                        continue
                    probabilities, seconds = WAYS[way](draw(train, each, seed), test, labels, seed)
                    right = probabilities.argmax(1) == gold
                    record = {"data": name, "split": arguments.split, "each": each, "seed": seed, "way": way}
                    score = {
                        "accuracy": round(100 * float(right.mean()), 2),
                        "calibration_error": round(calibration_error(probabilities.max(1), right), 2),
                        "seconds": round(seconds, 2),
                    }
                    add("few_labels", record | score, instead=keys)


if __name__ == "__main__":
    main()
