"""How much grammar is learned per minute, by `unmask pretrain` and by the Hugging Face Trainer?

From the same text, with the same vocabulary, each has 4, 12 and 36 minutes, in runs whose learning rates end at 0: ours
as it chooses by default; the Trainer with BERT of bert-mini's size, tuned as in trainer.py, at the rate that was best
there. Scored are the first pairs of each paradigm of BLiMP, and the masked tokens of held-out text that are predicted.
One seed. To let both run beside each other, start the command once for each engine, with one thread each
(`OMP_NUM_THREADS=1`). What is finished is not computed again.

The other arms train `modernbert-mini`, the recipe for an hour of two cores, until it has read some million tokens, with
some seeds: the same work on a machine of any speed. `tokens` is the recipe as it is; the others change its shape or its
vocabulary, whose tokens are not alike, so that bits per character of held-out articles are scored, too.

Few of the sentences in this text are questions, and some of BLiMP's paradigms have nothing else: both are counted.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from statistics import fmean
from typing import Any
from zipfile import ZipFile

import common
import numpy as np
import torch
import trainer
from common import RUNS, add, logged, parse
from files import english_corpus

import unmask
from unmask.data.corpus.corpus import Corpus
from unmask.model.model import load_model
from unmask.support.choices import Device
from unmask.training.machine import choose_machine

VOCABULARY = 8000
RATE = 1e-3
"""The Trainer's learning rate, which trainer.py found."""
DEVICE: Device = "cpu"


def pretrain(corpus: Corpus, out: Path, recipe: str | None = None, **how: Any) -> None:
    """Pretrain by a recipe, or that of the default, unless that is done."""
    if not (out / "model").exists():
        again = (out / "provenance.json").exists()
        unmask.pretrain(recipe, corpus=corpus, out=out, device=DEVICE, resume=again, **how)


def ours(corpus: Corpus, out: Path, minutes: float) -> None:
    """Pretrain by default."""
    pretrain(corpus, out, minutes=minutes)


def theirs(corpus: Corpus, out: Path, minutes: float) -> None:
    """Pretrain with the Trainer."""
    in_bf16 = choose_machine(DEVICE).precision == "bf16"
    trainer.run(corpus, out, minutes, {"optimizer.learning_rate": RATE}, trainer.TUNED | {"bf16": in_bf16})


ENGINES = {"unmask": ours, "trainer-tuned": theirs}
DEEP = {"layers": 8, "width": 192, "heads": 4, "feed_forward": 528}
BY_TOKENS: dict[str, tuple[int, dict[str, Any]]] = {
    "tokens": (VOCABULARY, {}),
    "deep": (VOCABULARY, {f"encoder.{name}": size for name, size in DEEP.items()}),
    "large-vocabulary": (2 * VOCABULARY, {}),
}
"""Vocabulary, and changes of the recipe, of arms with budgets in tokens; deep: as many operations, twice the layers."""
ARTICLES = 3
"""Number of held-out articles whose bits are scored."""


def are_questions(pairs: Path) -> bool:
    """Return whether all sentences of a paradigm are questions."""
    rows = [json.loads(line) for line in pairs.read_text(encoding="utf8").splitlines()]
    return all(row[f"sentence_{which}"].endswith("?") for row in rows for which in ("good", "bad"))


def bits(out: Path) -> float:
    """Return the bits per character of the first held-out articles."""
    text = common.SHARED / "text/wikipedia/heldout.jsonl.xz"
    found = unmask.evaluate(out, [text], suite="bits", limit=ARTICLES, quiet=True)
    return float(found["metrics"]["bits_per_character"])


def share_of_questions(corpus: Corpus) -> float:
    """Return how many of the full stops and question marks of a corpus are question marks."""
    ids = np.concatenate(corpus.train.tokens(range(len(corpus.train))))
    questions, stops = (np.count_nonzero(ids == corpus.tokenizer.encode(mark)[0]) for mark in "?.")
    return float(questions / (questions + stops))


def scored(out: Path, corpus: Corpus, blimp: Path, pairs: int) -> dict[str, Any]:
    """Return the record of a run."""
    recipe = tomllib.loads((out / "recipe.toml").read_text(encoding="utf8"))
    last: dict[str, Any] = logged(out)[-1]
    found = unmask.evaluate(out, [blimp], suite="blimp", limit=pairs, quiet=True)
    (score,) = found["metrics"].values()
    record = {name: last[name] for name in ("tokens", "seconds")}
    record |= {"recipe": recipe["name"], "score": score, "examples": found["examples"]}
    of_questions: dict[bool, list[float]] = {False: [], True: []}
    for name, paradigm in found["by_paradigm"].items():
        of_questions[are_questions(blimp / f"{name}.jsonl")].append(paradigm["accuracy"])
    for key, scores in zip(("others", "questions"), of_questions.values(), strict=True):
        record |= {f"paradigms_{key}": len(scores), f"score_{key}": fmean(scores) if scores else None}
    return record | trainer.score(load_model(out), corpus) | {"threads": torch.get_num_threads()}


def main() -> None:
    """Pretrain, and score."""
    names = [*ENGINES, *BY_TOKENS]
    options = parse(__doc__, names, runs=RUNS, minutes=[4.0, 12.0, 36.0], millions=[16.0], seeds=[0], pairs=50)
    folder = options.runs / "grammar"
    blimp = folder / "blimp/data"
    with ZipFile(common.SHARED / "probes/blimp.zip") as archive:
        archive.extractall(folder / "blimp")

    def text(vocabulary: int) -> Corpus:
        return english_corpus(folder / f"text-{vocabulary}", vocabulary, lowercase=False)

    for minutes in sorted(options.minutes):
        for engine in [name for name in options.names if name in ENGINES]:
            out, corpus = folder / f"{engine}-{minutes:g}", text(VOCABULARY)
            ENGINES[engine](corpus, out, minutes)
            record = scored(out, corpus, blimp, options.pairs)
            add("grammar", {"engine": engine, "minutes": minutes}, record)
    for seed in options.seeds:
        for millions in sorted(options.millions):
            for engine in [name for name in options.names if name in BY_TOKENS]:
                vocabulary, changes = BY_TOKENS[engine]
                out, corpus = folder / f"{engine}-{millions:g}-{seed}", text(vocabulary)
                budget = {"budget.minutes": None, "budget.tokens": 1e6 * millions, "seed": seed}
                pretrain(corpus, out, "modernbert-mini", settings=changes | budget)
                record = scored(out, corpus, blimp, options.pairs) | {"bits": bits(out)}
                record["questions_in_text"] = share_of_questions(corpus)
                add("grammar", {"engine": engine, "millions": millions, "seed": seed}, record)


if __name__ == "__main__":
    main()
