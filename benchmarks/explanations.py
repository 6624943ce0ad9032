"""Do explanations find the words that a prediction rests on? Deletion curves, against random orders and attention.

MiniLM is fine-tuned on examples of the training file. For each text of the split (dev, or training examples that were
not trained on, by which the default method was chosen) the words are masked, a tenth of them at a time, those first
that a method finds most important. `area` is the area under the probability of the label that was predicted for the
whole text: the smaller, the earlier the method names the words that the model needs.

Methods: occlusion and integrated gradients (unmask/inference/explanation.py); the attention of the last layer's [CLS],
mean over heads, and attention rollout (Abnar and Zuidema 2020), both summed over the tokens of a word; and random
orders, as the mean of `DRAWS`. `minus_random` is the difference from these on the same texts, and `minus_occlusion`
that from occlusion, each with a 95 % interval from bootstrapped texts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import RUNS, SHARED, add, minilm, parse
from labelled import SST2, SST2_DEV

import unmask
from unmask.data.batches.batch import Sample
from unmask.data.labelled.labelled_file import Row
from unmask.inference.explanation import Explainer
from unmask.inference.influence import read_attention
from unmask.tasks.classification import Classification
from unmask.tasks.explained import SampleWords

LEVELS = 10
"""Number of steps in which the words of a text are masked."""
DRAWS = 3
"""Number of random orders."""
LEAST_WORDS = 8
"""Shorter texts are left out: their curves have few points."""


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
Importance = Callable[[Sample, SampleWords], np.ndarray]
"""Returns the importance of each word of a sample, (words,)."""


def from_attention(explainer: Explainer, combine: Callable[[np.ndarray], np.ndarray]) -> Importance:
    """Return the importance by attention; `combine` makes (tokens,) of (layers, heads, tokens, tokens)."""

    def importance(sample: Sample, words: SampleWords) -> np.ndarray:
        weights = combine(read_attention(explainer.model.encoder, sample))
        return np.bincount(words.index[words.index >= 0], weights[words.index >= 0], len(words.words))

    return importance


def last_layer(weights: np.ndarray) -> np.ndarray:
    """Return the attention of [CLS] in the last layer, the mean over heads."""
    return np.asarray(weights[-1].mean(0)[0])


def rollout(weights: np.ndarray) -> np.ndarray:
    """Return the attention of [CLS] through all layers, each with its residual connection (Abnar and Zuidema 2020)."""
    through = np.eye(weights.shape[-1])
    for layer in weights.mean(1):
        through = (layer / 2 + np.eye(len(layer)) / 2) @ through
    return np.asarray(through[0])


def from_explanations(explain: Callable[[Sample, SampleWords], list[Any]]) -> Importance:
    """Return the importance by a method of unmask: the contributions to the predicted label."""
    return lambda sample, words: np.array([word.contribution for word in explain(sample, words)[0].words])


def curve(explainer: Explainer, sample: Sample, words: SampleWords, order: np.ndarray, label: int) -> float:
    """Return the area under the probability of a label as words are masked in an order."""
    mask, count = explainer.model.tokenizer.mask, len(order)
    masked = [
        sample.changed(ids=np.where(np.isin(words.index, order[: round(count * level / LEVELS)]), mask, sample.ids))
        for level in range(LEVELS + 1)
    ]
    logits = np.stack(explainer.backend.logits(explainer.task.part, masked))[:, 0].astype(
        np.float64
    )  # (levels, labels)
    probabilities = np.exp(logits - np.logaddexp.reduce(logits, 1)[:, None])[:, label]
    return float(np.trapezoid(probabilities, dx=1 / LEVELS))


def bootstrapped(values: np.ndarray, rng: np.random.Generator) -> list[float]:
    """Return the 95 % interval of a mean from 2,000 bootstrap samples."""
    means = rng.choice(values, (2000, len(values))).mean(1)
    return [float(bound) for bound in np.quantile(means, (0.025, 0.975))]


def measure(name: str, split: str, model: Path, rows: Sequence[Row]) -> None:
    """Add a record for each method on rows of a split."""
    predictor = unmask.load(model, device="cpu")
    explainer = Explainer(predictor.model, predictor.task, predictor.backend)
    framed = predictor.task.frame(predictor.model.tokenizer, rows, predictor.labels, gold=False)
    rng = np.random.default_rng(0)
    methods: dict[str, Importance] = {
        "occlusion": from_explanations(explainer.occlude),
        "integrated gradients": from_explanations(explainer.integrate),
        "attention, last layer": from_attention(explainer, last_layer),
        "attention rollout": from_attention(explainer, rollout),
        **{f"random {draw}": lambda sample, words: rng.random(len(words.words)) for draw in range(DRAWS)},
    }
    areas: dict[str, list[float]] = {method: [] for method in methods}
    seconds = dict.fromkeys(methods, 0.0)
    for number, sample in enumerate(framed.samples):
        words = explainer.words(framed, number)
        label = int(predictor.backend.logits(predictor.task.part, [sample])[0][0].argmax())
        for method, importance in methods.items():
            start = time.perf_counter()
            order = np.argsort(-importance(sample, words), kind="stable")
            seconds[method] += time.perf_counter() - start
            areas[method].append(curve(explainer, sample, words, order, label))
    by_draw = np.array([areas.pop(f"random {draw}") for draw in range(DRAWS)])  # (draws, texts)
    chance, about = by_draw.mean(0), {"texts": len(rows), "levels": LEVELS, "draws": DRAWS}
    for method, values in {**areas, "random order": chance.tolist()}.items():
        difference = np.array(values) - chance
        record: dict[str, Any] = {"area": float(np.mean(values))}
        intervals = {"area": bootstrapped(np.array(values), rng)}
        if method == "random order":
            record["by_draw"] = by_draw.mean(1).tolist()
        else:
            record |= {"minus_random": float(difference.mean()), "seconds": seconds[method] / len(rows)}
            intervals["minus_random"] = bootstrapped(difference, rng)
        if method == "integrated gradients":
            difference = np.array(values) - np.array(areas["occlusion"])
            record["minus_occlusion"] = float(difference.mean())
            intervals["minus_occlusion"] = bootstrapped(difference, rng)
        key = {"data": name, "split": split, "method": method}
        add("explanations", key, {**about, **record, "intervals": intervals})


def main() -> None:
    """Fine-tune a model for each data set, and measure the methods."""
    options, task = parse(__doc__, DATA, runs=RUNS), Classification()
    for name in options.names:
        data, run = DATA[name], options.runs / "explanations" / name
        parts = {
            part: task.read([SHARED / file], columns=data.columns)
            for part, file in (("train", data.train), ("dev", data.dev))
        }
        for rows in parts.values():
            random.Random(0).shuffle(rows)
        examples, parts["train"] = parts["train"][: data.examples], parts["train"][data.examples :]
        if not run.exists():
            train = [dict(row.values) for row in examples]
            unmask.finetune("classification", minilm(), train, run, settings=data.settings)
        for split in data.splits:
            long = [row for row in parts[split] if sum(len(text.split()) for text in task.texts(row)) >= LEAST_WORDS]
            measure(name, split, run / "model", long[: data.texts])


if __name__ == "__main__":
    main()
