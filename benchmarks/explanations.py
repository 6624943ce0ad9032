"""Do explanations find the words that a prediction rests on? Deletion curves, against random orders.

MiniLM is fine-tuned on examples of the training file. For each text of the split (dev, or training examples that were
not trained on, by which the default method was chosen) the words are masked, a tenth of them at a time, those first
that a method of `predict --explain` finds most important. `area` is the area under the probability of the label that
was predicted for the whole text: the smaller, the earlier the method names the words that the model needs.

Random orders are the mean of `DRAWS`. `minus_random` is the difference from these on the same texts, and
`minus_occlusion` that from occlusion, each with a 95 % interval from bootstrapped texts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from common import RUNS, SHARED, add, minilm, parse
from labelled import SST2, SST2_DEV

import unmask
from unmask.data.labelled.labelled_file import TEXTS, read_rows
from unmask.tasks.explained import Contribution

LEVELS = 10
"""Number of steps in which the words of a text are masked."""
DRAWS = 3
"""Number of random orders."""
LEAST_WORDS = 8
"""Shorter texts are left out: their curves have few points."""
METHODS = ("occlusion", "integrated-gradients")
Example = tuple[str, ...]
"""A text, or two of a pair."""


class Data(NamedTuple):
    """A data set: its files and columns, how much is trained on, and of which splits how many texts are explained."""

    train: str
    dev: str
    columns: dict[str, str]
    examples: int
    settings: dict[str, Any]
    splits: tuple[str, ...]
    texts: int


PAIR = {"text": "sentence1", "text_b": "sentence2", "label": "gold_label"}
SNLI = "pairs/snli/train_2000.jsonl.xz", "pairs/snli/dev_1000.jsonl.xz"
DATA = {
    "sst2": Data(SST2, SST2_DEV, {}, 2000, {}, ("train", "dev"), 100),
    "snli": Data(*SNLI, PAIR, 800, {"budget.epochs": 3}, ("dev",), 50),
}


def masked(example: Example, words: Sequence[Contribution]) -> Example:
    """Return an example with some of its words masked."""
    texts = list(example)
    for word in sorted(words, key=lambda word: -word.start):
        text = texts[word.text]
        texts[word.text] = f"{text[: word.start]}[MASK]{text[word.end :]}"
    return tuple(texts)


def curve(model: Any, example: Example, words: Sequence[Contribution], label: str) -> float:
    """Return the area under the probability of a label as words are masked in their order."""
    steps = [masked(example, words[: round(len(words) * level / LEVELS)]) for level in range(LEVELS + 1)]
    probabilities = [one.scores[label] for one in model.predict(*map(list, zip(*steps, strict=True)))]
    return float(np.trapezoid(probabilities, dx=1 / LEVELS))


def bootstrapped(values: np.ndarray) -> list[float]:
    """Return the 95 % interval of a mean from 2,000 bootstrap samples."""
    means = np.random.default_rng(0).choice(values, (2000, len(values))).mean(1)
    return [float(bound) for bound in np.quantile(means, (0.025, 0.975))]


def measure(name: str, split: str, model: Any, examples: Sequence[Example]) -> None:
    """Add a record for each method on examples of a split."""
    areas: dict[str, np.ndarray] = {}
    for method in METHODS:
        explained = model.predict(*map(list, zip(*examples, strict=True)), explain=method)
        contributions = [one.explanations[0].words for one in explained]
        orders = [sorted(words, key=lambda word: -word.contribution) for words in contributions]
        whole = zip(examples, orders, explained, strict=True)
        areas[method] = np.array([curve(model, text, order, one.label) for text, order, one in whole])
    rng = random.Random(0)
    drawn = [
        [curve(model, one, rng.sample(words, len(words)), of.label) for _ in range(DRAWS)]
        for one, words, of in zip(examples, contributions, explained, strict=True)
    ]
    areas["random order"] = np.mean(drawn, 1)
    for method, values in areas.items():
        compared = {"area": values}
        if method != "random order":
            compared["minus_random"] = values - areas["random order"]
        if method == "integrated-gradients":
            compared["minus_occlusion"] = values - areas["occlusion"]
        record = {part: float(found.mean()) for part, found in compared.items()}
        intervals = {part: bootstrapped(found) for part, found in compared.items()}
        key = {"data": name, "split": split, "method": method.replace("-", " ")}
        add("explanations", key, {"texts": len(examples), **record, "intervals": intervals})


def main() -> None:
    """Fine-tune a model for each data set, and measure the methods."""
    options = parse(__doc__, DATA, runs=RUNS)
    for name in options.names:
        data, run = DATA[name], options.runs / "explanations" / name
        train, dev = (read_rows([SHARED / file], columns=data.columns) for file in (data.train, data.dev))
        for rows in (train, dev):
            random.Random(0).shuffle(rows)
        if not (run / "model").exists():
            learned = [dict(row.values) for row in train[: data.examples]]
            unmask.finetune("classification", minilm(), learned, run, settings=data.settings)
        model = unmask.load(run, device="cpu")
        for split in data.splits:
            rows = train[data.examples :] if split == "train" else dev
            texts = [tuple(row.values[part] for part in TEXTS if part in row.values) for row in rows]
            long = [one for one in texts if len(" ".join(one).split()) >= LEAST_WORDS]
            measure(name, split, model, long[: data.texts])


if __name__ == "__main__":
    main()
