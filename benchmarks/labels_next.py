"""Which texts should be labeled next? Suggestions as by `unmask suggest` beside texts chosen at random.

Batches of 20 texts are labeled, up to 200. After each, logistic regression learns from the frozen vectors of MiniLM (a
sentence-embedding model) and is scored on other texts. The first batch is chosen by vectors alone, the next ones by
this classifier, too. Ten draws of 3,000 texts: phrases of SST-2 (accuracy on its dev set), paragraphs of the demo's
topics (accuracy on others), and the same with one topic that 2 % of the texts have (its F1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from common import add, parse
from labelled import SST2, SST2_DEV, Labelled, embed, every_paragraph, read_texts
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score

from unmask.inference.selection import PREFILTER, balanced_order, select_diverse

BATCH, MOST = 20, 200
POOL, READ = 3_000, 12_000
"""Texts of a draw, and of SST-2 among which they are drawn."""
RARE, SHARE = "numbers", 0.02
"""The topic that is rare, and its share of the texts."""
STRATEGIES = ("random", "suggest")


class Labeled(NamedTuple):
    """Vectors of texts, (texts, width), and their labels, (texts,)."""

    vectors: np.ndarray
    labels: np.ndarray

    def take(self, indices: np.ndarray) -> Labeled:
        """Return some of them."""
        return Labeled(self.vectors[indices], self.labels[indices])


Draw = Callable[[int], tuple[Labeled, Labeled]]
"""Returns, for a seed, texts to choose from and texts to score on."""


def with_vectors(examples: Sequence[Labelled]) -> Labeled:
    """Return the vectors of texts with their labels."""
    return Labeled(embed([one.text for one in examples]), np.array([one.label for one in examples]))


def sst2() -> Draw:
    """Return draws of training phrases, scored on the dev set."""
    train = read_texts(SST2)
    chosen = np.random.default_rng(0).permutation(len(train))[:READ]
    pool, scored = with_vectors([train[index] for index in chosen]), with_vectors(read_texts(SST2_DEV))
    return lambda seed: (pool.take(np.random.default_rng(seed).permutation(len(pool.labels))[:POOL]), scored)


def topics() -> Draw:
    """Return draws of paragraphs, scored on others."""
    every = with_vectors(every_paragraph())

    def draw(seed: int) -> tuple[Labeled, Labeled]:
        order = np.random.default_rng(seed).permutation(len(every.labels))
        return every.take(order[:POOL]), every.take(order[POOL : 2 * POOL])

    return draw


def with_rare(draw: Draw) -> Draw:
    """Return draws with two labels, one of which few of the texts to choose from have."""

    def drawn(seed: int) -> tuple[Labeled, Labeled]:
        pool, scored = (Labeled(part.vectors, np.where(part.labels == RARE, "rare", "other")) for part in draw(seed))
        rare, others = (np.flatnonzero(pool.labels == label) for label in ("rare", "other"))
        return pool.take(np.sort([*others, *rare[: round(SHARE * len(others))]])), scored

    return drawn


def score(gold: np.ndarray, predicted: np.ndarray) -> float:
    """Return the F1 of a rare label, or else the accuracy, times 100."""
    if "rare" in gold:
        return 100 * float(f1_score(gold, predicted, pos_label="rare", zero_division=0))
    return 100 * float(accuracy_score(gold, predicted))


def choose(strategy: str, pool: Labeled, left: np.ndarray, model: Any, rng: np.random.Generator) -> np.ndarray:
    """Return the indices of the next batch of texts.

    Args:
        strategy: one of `STRATEGIES`.
        pool: all texts.
        left: indices of those without a label.
        model: the classifier; None: there is none, or it knows one label only.
        rng: of the draw.
    """
    if strategy == "random":
        return rng.permutation(left)[:BATCH]
    if model is None:
        return left[select_diverse(pool.vectors[left], np.ones(len(left)), BATCH, rng)]
    probabilities = model.predict_proba(pool.vectors[left])
    second, first = np.sort(probabilities, 1)[:, -2:].T
    uncertainty = 1 - (first - second)
    candidates = balanced_order(uncertainty, probabilities.argmax(1))[: PREFILTER * BATCH]
    chosen = select_diverse(pool.vectors[left[candidates]], uncertainty[candidates], BATCH, rng)
    return left[candidates[chosen]]


def curve(strategy: str, pool: Labeled, scored: Labeled, seed: int) -> list[dict[str, Any]]:
    """Return the score after each batch, and their mean."""
    rng, model = np.random.default_rng(seed), None
    labeled, items = np.zeros(0, np.int64), list[dict[str, Any]]()
    while len(labeled) < min(MOST, len(pool.labels)):
        left = np.setdiff1d(np.arange(len(pool.labels)), labeled)
        labeled = np.concatenate([labeled, choose(strategy, pool, left, model, rng)])
        known = pool.take(labeled)
        if len(set(known.labels)) < 2:
            predicted = np.full(len(scored.labels), known.labels[0])
        else:
            model = LogisticRegression(C=10, max_iter=1000).fit(*known)
            predicted = model.predict(scored.vectors)
        items.append({"labels": len(labeled), "score": round(score(scored.labels, predicted), 2)})
    mean = float(np.mean([item["score"] for item in items]))
    return [*items, {"labels": "mean", "score": round(mean, 2)}]


def main() -> None:
    """Measure, and write benchmarks/results/suggest.json."""
    options = parse(__doc__, draws=10)
    paragraphs = topics()
    for name, draw in (("topics", paragraphs), ("rare", with_rare(paragraphs)), ("sst2", sst2())):
        for seed in range(options.draws):
            for strategy in STRATEGIES:
                record = {"curve": curve(strategy, *draw(seed), seed)}
                add("suggest", {"data": name, "strategy": strategy, "seed": seed}, record)


if __name__ == "__main__":
    main()
