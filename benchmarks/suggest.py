"""Which texts should be labeled next? Suggestions of `unmask suggest` beside texts chosen at random.

Batches of 20 texts are labeled, up to 200. After each, `unmask finetune --frozen` learns from MiniLM (a
sentence-embedding model), and is scored on other texts. The encoder suggests the first batch, the classifier the next
ones. Ten draws of 3,000 texts: phrases of SST-2 (accuracy on its dev set), paragraphs of the demo's topics (accuracy on
others), and the same with one topic that 2 % of the texts have (its F1).
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from common import add, minilm, parse
from labelled import SST2, SST2_DEV, Labelled, every_paragraph, read_texts

import unmask

DRAWS, BATCH, MOST, POOL = 10, 20, 200, 3_000
"""Number of draws, texts that are labeled at a time, and in all, and texts of a draw."""
RARE, SHARE = "numbers", 0.02
"""The topic that is rare, and its share of the texts."""
STRATEGIES = ("random", "suggest")
Draw = tuple[Sequence[Labelled], Sequence[Labelled]]
"""Texts to choose from, and texts to score on."""


def sst2(seed: int) -> Draw:
    """Return training phrases, scored on the dev set."""
    return random.Random(seed).sample(list(dict.fromkeys(read_texts(SST2))), POOL), read_texts(SST2_DEV)


def topics(seed: int) -> Draw:
    """Return paragraphs, scored on others."""
    drawn = random.Random(seed).sample(every_paragraph(), 2 * POOL)
    return drawn[:POOL], drawn[POOL:]


def rare(seed: int) -> Draw:
    """Return paragraphs with two labels, one of which few of the texts to choose from have."""
    pool, scored = (
        [one._replace(label="rare" if one.label == RARE else "other") for one in part] for part in topics(seed)
    )
    others = [one for one in pool if one.label == "other"]
    return others + [one for one in pool if one.label == "rare"][: round(SHARE * len(others))], scored


def learn(labeled: dict[str, str], scored: Sequence[Labelled], run: Path) -> tuple[Path | str, float]:
    """Return a classifier that learned from labeled texts, MiniLM if they have one label only, and its score."""
    names = set(labeled.values())
    texts, gold = ([one[part] for one in scored] for part in (0, 1))
    if len(names) == 1:
        return minilm(), 0.0 if "rare" in gold else 100 * statistics.mean(label in names for label in gold)
    data = [*labeled], [*labeled.values()]
    unmask.finetune("classification", minilm(), data, run, frozen=True, all_examples=True, quiet=True)
    metrics = unmask.evaluate(run, (texts, gold), quiet=True)["metrics"]
    return run, metrics["f1" if "rare" in gold else "accuracy"]


def curve(strategy: str, draw: Draw, seed: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the score after each batch, and their mean."""
    (pool, scored), rng, scores = draw, random.Random(seed), list[float]()
    known, labeled = dict(pool), dict[str, str]()
    model: Path | str = minilm()
    while len(labeled) < min(MOST, len(known)):
        left = [text for text in known if text not in labeled]
        chosen = rng.sample(left, min(BATCH, len(left)))
        if strategy == "suggest":
            found = unmask.suggest(model, {"text": left}, out=None, count=BATCH, seed=seed, quiet=True)
            chosen = [one.text for one in found]
        labeled |= {text: known[text] for text in chosen}
        model, score = learn(labeled, scored, folder / f"{len(labeled)}")
        scores.append(round(score, 2))
        yield {"labels": len(labeled), "score": scores[-1]}
    yield {"labels": "mean", "score": round(statistics.mean(scores), 2)}


DATA: dict[str, Callable[[int], Draw]] = {"topics": topics, "rare": rare, "sst2": sst2}


def main() -> None:
    """Measure, and write benchmarks/results/suggest.json."""
    options = parse(__doc__, DATA)
    for name in options.names:
        for seed in range(DRAWS):
            for strategy in STRATEGIES:
                with tempfile.TemporaryDirectory() as folder:
                    record = {"curve": [*curve(strategy, DATA[name](seed), seed, Path(folder))]}
                add("suggest", {"data": name, "strategy": strategy, "seed": seed}, record)


if __name__ == "__main__":
    main()
