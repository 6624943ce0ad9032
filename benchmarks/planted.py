"""Whether `unmask.compare` recommends the right arm where the truth is planted, in generated worlds of invented words.

Each world has two arms, one of which must be better, for a reason that is known, or neither:

- order: documents go through stages, each with words of its own, and a label says whether two sentences follow in this
  order. Sentence order prediction (`pair = sentence_order`) learns exactly that.
- spans: each word stands four times in a row, so that a masked one is to be copied from beside it; only whole spans
  have to be predicted from other words of a document, all of which are on one topic. A label says on which topic words
  are, others than those with labels.
- context: the last word decides. One arm reads 64 tokens, all of the text, the other one 16.
- same: the arms differ in the number of positions, which no text needs: it is too close to call.

Each repetition is another world. Finished cells stay in the folder of `--runs`, so an interrupted benchmark continues.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common import RUNS, add, parse

import unmask
from unmask.support.settings import convert, write
from unmask.workflows.comparing.settings import Comparison

SHAPE = {"layers": 1, "width": 64, "heads": 2, "feed_forward": 128, "positions": 64, "dropout": 0.0, "init_std": 0.1}
SETTINGS: dict[str, Any] = {f"encoder.{name}": value for name, value in SHAPE.items()} | {
    "tokenizer.vocabulary": 400,
    "layout.length": 32,
    "batch.tokens": 512,
    "optimizer.learning_rate": 0.002,
    "masking.rate": 0.25,
    "masking.final_rate": 0.25,
}
ALONE = {"stages": [], "layout.kind": "document_sentences", "objective.next_sentence": False}
"""Settings of pretraining without pairs."""
ARM = {"recipe": "bert-tiny", "use": "finetuned"}
SEEDS, TRAIN, SOME, FEW, TEST = 5, 100, 48, 12, 400  # numbers of seeds, and of examples to train on and to test on
Rows = Iterator[tuple[str, ...]]
World = tuple[Iterator[str], Rows, Rows, dict[str, Any]]
"""Documents, labeled rows to train on and to test on, and what else the comparison has."""


def words(rng: random.Random, groups: int, each: int) -> list[list[str]]:
    """Return groups of invented words, all different."""
    syllables = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
    invented = rng.sample([first + second for first in syllables for second in syllables], groups * each)
    return [invented[start::groups] for start in range(groups)]


def about_topics(rng: random.Random, topics: list[list[str]], number: int, size: int) -> Rows:
    """Yield texts of this many of the words of a topic, with the topic."""
    for _ in range(number):
        topic = rng.randrange(len(topics))
        yield " ".join(rng.sample(topics[topic], size)), f"topic {topic}"


def order(rng: random.Random) -> World:
    """Return documents that go through stages, and pairs of sentences in this order or in the other one."""
    stages = words(rng, 8, 15)

    def sentence(stage: int) -> str:
        return " ".join(rng.sample(stages[stage], 3)) + "."

    def rows(number: int) -> Rows:
        for _ in range(number):
            first = rng.randrange(len(stages) - 1)
            pair = (sentence(first), sentence(first + 1))
            yield (*pair, "right") if rng.random() < 0.5 else (pair[1], pair[0], "wrong")

    starts = (rng.randrange(len(stages) - 3) for _ in range(2000))
    documents = (" ".join(sentence(start + number) for number in range(4)) for start in starts)
    settings = {"encoder.layers": 2, "encoder.init_std": 0.04, "optimizer.learning_rate": 0.003}
    changes = {"arms": {"base": {"recipe": ARM["recipe"]}}, "vary": {"pair": ["none", "sentence_order"]}}
    return documents, rows(FEW), rows(TEST), {**changes, "settings": settings}


def spans(rng: random.Random) -> World:
    """Return documents of words on one topic, each four times in a row, and texts whose label is their topic."""
    topics = [[" ".join([word] * 4) for word in topic] for topic in words(rng, 4, 12)]
    documents = (" ".join(rng.sample(rng.choice(topics), 7)) for _ in range(4000))
    local = ALONE | {"encoder.initial_offsets": [-1, 1]}
    changes = {"arms": {"base": ARM}, "vary": {"masking": ["token", "span"]}, "settings": local}
    known, new = ([topic[part] for topic in topics] for part in (slice(6), slice(6, 12)))
    return documents, about_topics(rng, known, SOME, 2), about_topics(rng, new, TEST, 2), changes


def context(rng: random.Random) -> World:
    """Return texts whose first and last words are of two kinds, and whose label is the kind of the last one."""
    *kinds, others = words(rng, 3, 10)

    def text(first: int, last: int) -> str:
        return f"{rng.choice(kinds[first])} {' '.join(rng.choices(others[:5], k=24))} {rng.choice(kinds[last])}"

    def rows(number: int) -> Rows:
        for _ in range(number):
            first, last = rng.choices(range(len(kinds)), k=2)
            yield text(first, last), f"kind {last}"

    documents = (text(kind, kind) for kind in rng.choices(range(len(kinds)), k=1000))
    settings = {length: {"layout.length": length, "encoder.positions": length} for length in (16, 64)}
    arms = {f"length={n}": ARM | {"settings": settings[n], "task_settings": {"task.length": n}} for n in settings}
    return documents, rows(TRAIN), rows(TEST), {"arms": arms, "settings": ALONE}


def same(rng: random.Random) -> World:
    """Return texts of words on one topic, the label, and two arms that differ in nothing that matters."""
    topics = words(rng, 4, 24)
    everything = [word for topic in topics for word in topic]
    documents = (" ".join(rng.sample(rng.choice(topics), 6) + rng.sample(everything, 6)) for _ in range(1000))
    arms = {f"positions={number}": ARM | {"settings": {"encoder.positions": number}} for number in (64, 72)}
    known, new = ([topic[part] for topic in topics] for part in (slice(12), slice(12, 24)))
    rows = about_topics(rng, known, TRAIN, 4), about_topics(rng, new, TEST, 4)
    return documents, *rows, {"arms": arms, "settings": ALONE}


WORLDS: dict[str, tuple[Callable[[random.Random], World], str, str]] = {
    "order": (order, "240ktok", "pair=sentence_order"),
    "spans": (spans, "240ktok", "masking=span"),
    "context": (context, "30ktok", "length=64"),
    "same": (same, "30ktok", ""),
}
"""Worlds, with the budget of each arm, and the arm that must be recommended; "": it is too close to call."""


def write_world(folder: Path, name: str, number: int) -> Path:
    """Write the files of a world and of its comparison; return the path of the latter."""
    make, budget, _ = WORLDS[name]
    documents, train, test, changes = make(random.Random(number))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text("\n".join(documents))
    for part, rows in (("train", train), ("test", test)):
        lines = ["\t".join(row) for row in rows]
        head = ["text", "text_b", "label"] if lines[0].count("\t") == 2 else ["text", "label"]
        (folder / f"{part}.tsv").write_text("\n".join(["\t".join(head), *lines]))
    table = {"arms": {"base": ARM}, **changes, "settings": SETTINGS | changes["settings"], "budget": budget}
    table |= {"text": ["text.txt"], "documents": "line", "seeds": SEEDS}
    table["tasks"] = {name: {"train": ["train.tsv"], "test": ["test.tsv"]}}
    (folder / "comparison.toml").write_text(write(convert(table, Comparison, name)))
    return folder / "comparison.toml"


def main() -> None:
    """Run the benchmark."""
    options = parse(__doc__, WORLDS, runs=RUNS, repetitions=list(range(20)))
    for number in options.repetitions:
        for name in options.names:
            folder, planted = options.runs / "planted" / f"{name}-{number}", WORLDS[name][2]
            outcome = unmask.compare(write_world(folder, name, number), out=folder / "out", quiet=True, device="cpu")
            recommended = outcome.best[0] if len(outcome.best) == 1 else ""
            record: dict[str, Any] = {"planted": planted or "neither", "recommended": recommended or "neither"}
            record |= {"scores": {arm.name: round(arm.score.mean, 1) for arm in outcome.arms if arm.score}}
            record["right"] = 100.0 * (recommended == planted)
            add("planted", {"world": name, "number": number}, record)


if __name__ == "__main__":
    main()
