"""Do explanations find the words that a prediction rests on? Deletion curves, against random orders and attention.

    python benchmarks/explanations.py [sst2 snli] [--split dev|train] [--texts N] [--examples N] [--epochs N]

MiniLM is fine-tuned on examples of the training file. For each text of the split (dev, or training examples that were
not trained on, by which the default method was chosen) the words are masked, a tenth of them at a time, those first
that a method finds most important. `area` is the area under the probability of the label that was predicted for the
whole text: the smaller, the earlier the method names the words that the model needs.

Methods: occlusion and integrated gradients (unmask/inference/explanation.py); the attention of the last layer's [CLS],
mean over heads, and attention rollout (Abnar and Zuidema 2020), both summed over the tokens of a word; and random
orders, as the mean of `draws`. `minus_random` is the difference from these on the same texts, and `minus_occlusion`
that from occlusion, each with a 95 % interval from bootstrapped texts.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import SHARED, add, minilm

import unmask
from unmask.data.batches.batch import Sample
from unmask.data.labelled.labelled_file import Row
from unmask.inference.explanation import Explainer
from unmask.inference.influence import read_attention
from unmask.tasks.classification import Classification
from unmask.tasks.explained import SampleWords

LEVELS = 10
"""Number of steps in which the words of a text are masked."""
LEAST_WORDS = 8
"""Shorter texts are left out: their curves have few points."""
DATA: dict[str, tuple[str, str, dict[str, str]]] = {
    "sst2": ("classification/sst2/train.tsv.xz", "classification/sst2/dev.tsv", {"text": "sentence"}),
    "snli": (
        "pairs/snli/train_2000.jsonl.xz",
        "pairs/snli/dev_1000.jsonl.xz",
        {"text": "sentence1", "text_b": "sentence2", "label": "gold_label"},
    ),
}
"""Training file, dev file and columns of each data set."""

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


def measure(name: str, split: str, model: Path, rows: Sequence[Row], draws: int) -> None:
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
        **{f"random {draw}": lambda sample, words: rng.random(len(words.words)) for draw in range(draws)},
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
    by_draw = np.array([areas.pop(f"random {draw}") for draw in range(draws)])  # (draws, texts)
    chance, about = (
        by_draw.mean(0),
        {"data": name, "split": split, "texts": len(rows), "levels": LEVELS, "draws": draws},
    )
    for method, values in {**areas, "random order": chance.tolist()}.items():
        difference = np.array(values) - chance
        record = {**about, "method": method, "area": float(np.mean(values))}
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
        add("explanations", {**record, "intervals": intervals}, instead=("data", "split", "method"))


def main() -> None:
    """Fine-tune a model for each data set, and measure the methods."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", default=list(DATA))
    parser.add_argument("--split", choices=["dev", "train"], default="dev")
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=None, help="number of epochs; the rule's by default")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--model", default=None, help="MODEL that is fine-tuned; MiniLM by default")
    parser.add_argument("--runs", type=Path, default=None, help="folder for the runs; they are kept, and used again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.data:
            run = (options.runs or Path(temporary)) / name
            train, dev, columns = DATA[name]
            task = Classification()
            rows = task.read([SHARED / train], columns=columns)
            random.Random(0).shuffle(rows)
            examples, rest = rows[: options.examples], rows[options.examples :]
            if options.split == "dev":
                rest = task.read([SHARED / dev], columns=columns)
                random.Random(0).shuffle(rest)
            if not run.exists():
                unmask.finetune(
                    "classification",
                    model=options.model or minilm(),
                    train=[dict(row.values) for row in examples],
                    out=run,
                    settings=None if options.epochs is None else {"budget.epochs": options.epochs},
                )
            long = [row for row in rest if sum(len(text.split()) for text in task.texts(row)) >= LEAST_WORDS]
            measure(name, options.split, run / "model", long[: options.texts], options.draws)


if __name__ == "__main__":
    main()
