"""Does `unmask audit` find wrong labels, and what does it help to correct those that it ranks first?

In labels that are right, as far as known, those of 5, 10 or 20 % of the examples are made wrong: "random" ones get any
other label with equal probability, or one entity of a sentence another type, or none; "confusions" are the mistakes of
a weaker model, which learned from the token embeddings of 100 examples, without context. They are then audited with
MiniLM's encoder.

Measured: precision and recall of the examples that are flagged; those of the first tenth of the ranking; and the score
on held-out examples, whose labels are as published, of MiniLM, frozen, that learned from the noisy labels, from those
whose first tenth is corrected, from those of which a random tenth is corrected, and from the original ones. Only wrong
labels that were planted count as wrong, although the data has some of its own.

`--finetuned` audits as with `--finetune-in`, by models that are fine-tuned on the other folds, too; its records are in
audit_finetuned.json.

`published` audits the labels of CoNLL-2003's second test set (testb) as they are, if `--corrected` names the file in
which Wang et al. (2019) corrected it by hand, conllpp_test.txt of github.com/ZihanWangKi/CrossWeigh: a sentence is
wrong whose tags are others there.

The data: 2,000 of SST-2's training phrases, scored on its dev set; the paragraphs of `benchmarks/labelled.py`, the
part with 100 for each topic, scored on the other part; every eighth sentence of CoNLL-2003, scored on every fourth of
testb.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import SEEDS, SHARED, add, minilm, parse
from labelled import SST2, SST2_DEV, Labelled, read_texts, topics

import unmask
from unmask.data.labelled.tagged_sentence import write_tags
from unmask.metrics.token_classification import chunks
from unmask.tasks import TASKS

RATES = (0.05, 0.1, 0.2)
NOISES = ("random", "confusions")
DATA = ("sst2", "topics", "conll2003")
CONLL = "ner/conll2003"
PUBLISHED = "published"
"""Labels that are audited as they are."""
WEAK_EXAMPLES, TEXTS, SENTENCES, TESTED = 100, 2000, 8, 4
"""Examples that the weaker model is trained on; phrases; one sentence in how many is audited, and scored."""
STATIC = {"downstream.layers": [0]}
"""Settings of a model that reads token embeddings alone."""
MISSING = ""
"""Type of an entity that is removed."""
Example = dict[str, Any]
"""A text with its label, or words with their tags, as `unmask.finetune` takes them from memory."""


class Data(NamedTuple):
    """A task, the examples that are audited, and those that are scored on."""

    task: Any
    train: list[Example]
    test: list[Example]


def of_texts(train: Sequence[Labelled], test: Sequence[Labelled]) -> Data:
    """Return texts with labels as data."""
    return Data("classification", *([one._asdict() for one in part] for part in (train, test)))


def sentences(path: Path, each: int = 1) -> list[Example]:
    """Return one in `each` of the sentences of a tagged file."""
    found = TASKS["token-classification"]().read([path], columns={})
    return [{"words": [*one.words], "tags": [*one.tags]} for one in found[::each]]


def read(name: str) -> Data:
    """Return the data of this name."""
    if name == "topics":
        test, train = topics()
        return of_texts(train, test)
    if name == "sst2":
        return of_texts(random.Random(0).sample(read_texts(SST2), TEXTS), read_texts(SST2_DEV))
    folder = SHARED / CONLL
    audited, scored = sentences(folder / "eng.train.xz", SENTENCES), sentences(folder / "eng.testb.xz", TESTED)
    return Data("token-classification", audited, scored)


def learn(data: Data, examples: list[Example], run: Path, **settings: Any) -> Path:
    """Train MiniLM, frozen, on examples of some data; return the run."""
    reads: Any = "average" if data.task == "classification" else "linear"
    start: dict[str, Any] = {"frozen": True, "downstream": reads, "all_examples": True, "quiet": True}
    return unmask.finetune(data.task, minilm(), examples, run, settings=settings, **start)


def kinds_of(example: Example) -> list[str]:
    """Return the label of an example, or the types of its entities."""
    return [example["label"]] if "label" in example else [entity.type for entity in chunks(example["tags"])]


def wrong_at_random(example: Example, kinds: Sequence[str], rng: random.Random) -> Example:
    """Return an example with another one of some labels, or with another type of one of its entities, if it has any."""
    if "label" in example:
        return {**example, "label": rng.choice([kind for kind in kinds if kind != example["label"]])}
    entities = chunks(example["tags"])
    if not entities:
        return example
    chosen = rng.choice(entities)
    kind = rng.choice([kind for kind in [*kinds, MISSING] if kind != chosen.type])
    changed = [entity._replace(type=kind) if entity == chosen else entity for entity in entities]
    return {**example, "tags": write_tags([one for one in changed if one.type], len(example["tags"]))}


def mistaken(data: Data, rng: random.Random, folder: Path) -> list[Example]:
    """Return the examples with the labels that a weaker model predicts."""
    run = learn(data, rng.sample(data.train, WEAK_EXAMPLES), folder / "weak", **STATIC)
    predictions = unmask.predict(run, data.train, quiet=True)
    if data.task == "classification":
        return [{**one, "label": each.label} for one, each in zip(data.train, predictions, strict=True)]
    tags = [[each.scores.labels[at] for at in each.scores.logits.argmax(1)] for each in predictions]
    entities = map(chunks, tags)  # whose tags may begin with I
    return [
        {**one, "tags": write_tags(each, len(one["words"]))} for one, each in zip(data.train, entities, strict=True)
    ]


def audited(data: Data, noise: str, rate: float, seed: int, folder: Path, *, finetuned: bool) -> dict[str, Any]:
    """Make the labels of some examples wrong, and measure what an audit finds, and what it helps."""
    rng, size = random.Random(seed), len(data.train)
    if noise == "random":
        kinds = sorted({kind for one in data.train for kind in kinds_of(one)})
        others = [wrong_at_random(one, kinds, rng) for one in data.train]
    else:
        others = mistaken(data, rng, folder)
    candidates = [number for number in range(size) if others[number] != data.train[number]]
    wrong = np.isin(np.arange(size), rng.sample(candidates, min(len(candidates), round(rate * size))))
    flagged, first, estimate = looked_for(data.task, choose(wrong, others, data.train), folder, finetuned=finetuned)
    shuffled = np.random.default_rng(seed).permutation(first)
    ways = {"noisy": wrong, "fixed": wrong & ~first, "fixed_randomly": wrong & ~shuffled, "clean": wrong & False}
    scores = {}
    for way, left in ways.items():
        run = learn(data, choose(left, others, data.train), folder / way)
        metric = TASKS[data.task]().metric
        scores[way] = unmask.evaluate(run, data.test, quiet=True)["metrics"][metric]
    lost = scores["clean"] - scores["noisy"]
    regained = 100 * (scores["fixed"] - scores["noisy"]) / lost if lost else 100.0
    return {"examples": size, **found(flagged, first, wrong), **estimate, **scores, "regained": regained}


def choose(which: np.ndarray, others: Sequence[Example], examples: Sequence[Example]) -> list[Example]:
    """Return examples, some of them others."""
    return [other if taken else one for taken, other, one in zip(which, others, examples, strict=True)]


def looked_for(
    task: Any, data: list[Example], folder: Path, *, finetuned: bool
) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Audit examples; return which are flagged, which are in the first tenth, and what is estimated."""
    out, runs = folder / "fix.jsonl", folder / "folds" if finetuned else None
    audit = unmask.audit(minilm(), data, task=task, out=out, finetune_in=runs, quiet=True)
    flagged, first = np.zeros((2, len(data)), bool)
    for row in map(json.loads, out.read_text(encoding="utf8").splitlines()):
        line = int(row["source"].rpartition(":")[2]) - 1
        flagged[line] = row["suggested"] is not None
        first[line] = row["rank"] <= len(data) // 10
    return flagged, first, {"noise_estimate": 100 * audit.noise, "agreement": 100 * audit.agreement}


def published(given: list[Example], corrected: list[Example], folder: Path, *, finetuned: bool) -> dict[str, Any]:
    """Audit sentences as they were published, and measure what is found of those that others have corrected."""
    if [one["words"] for one in given] != [one["words"] for one in corrected]:
        raise SystemExit("the corrected sentences are not those that were published")
    wrong = np.array([one != other for one, other in zip(given, corrected, strict=True)])
    flagged, first, estimate = looked_for("token-classification", given, folder, finetuned=finetuned)
    return {"examples": len(given), **found(flagged, first, wrong), **estimate}


def found(flagged: np.ndarray, first: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """Return precision and recall of what is flagged, and of the first tenth, times 100."""
    return {
        "wrong": int(wrong.sum()),
        "flagged": int(flagged.sum()),
        "precision": share(wrong[flagged]),
        "recall": share(flagged[wrong]),
        "first_tenth_precision": share(wrong[first]),
        "first_tenth_recall": share(first[wrong]),
    }


def share(which: np.ndarray) -> float:
    """Return the share of the true values, times 100; of none, 0."""
    return 100 * float(which.mean()) if which.size else 0.0


def main() -> None:
    """Plant wrong labels, audit, and write what was found."""
    options = parse(__doc__, DATA, seeds=SEEDS, rates=RATES, corrected="", finetuned=False)
    result_name = "audit_finetuned" if options.finetuned else "audit"
    if options.corrected:
        given, corrected = sentences(SHARED / CONLL / "eng.testb.xz"), sentences(Path(options.corrected))
        with tempfile.TemporaryDirectory() as folder:
            result = published(given, corrected, Path(folder), finetuned=options.finetuned)
        rate = round(100 * result["wrong"] / result["examples"], 1)
        add(result_name, {"data": "conll2003", "noise": PUBLISHED, "rate": rate, "seed": 0}, result)
        return
    for name in options.names:
        data = read(name)
        for noise, rate, seed in product(NOISES, options.rates, options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                result = audited(data, noise, rate, seed, Path(folder), finetuned=options.finetuned)
            add(result_name, {"data": name, "noise": noise, "rate": 100 * rate, "seed": seed}, result)


if __name__ == "__main__":
    main()
