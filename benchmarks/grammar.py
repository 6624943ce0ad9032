"""How much grammar is learned per minute, by `unmask pretrain` and by the Hugging Face Trainer?

From the same text, with the same vocabulary, each has 4, 12 and 36 minutes, in runs whose learning rates end at 0: ours
as it chooses by default; the Trainer with BERT of bert-mini's size, tuned as in trainer.py, at the rate that was best
there. Scored are the first pairs of each paradigm of BLiMP, and the masked tokens of held-out text that are predicted.
One seed. To let both run beside each other, start the command once for each engine, with one thread each
(`OMP_NUM_THREADS=1`). What is finished is not computed again.

`tokens` is `modernbert-mini`, the recipe for an hour of two cores, until it has read some million tokens, with some
seeds: the same work on a machine of any speed.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import common
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
TOKENS = "tokens"


def scored(out: Path, corpus: Corpus, blimp: Path, pairs: int) -> dict[str, Any]:
    """Return the record of a run."""
    recipe = tomllib.loads((out / "recipe.toml").read_text(encoding="utf8"))
    last: dict[str, Any] = logged(out)[-1]
    found = unmask.evaluate(out, [blimp], suite="blimp", limit=pairs, quiet=True)
    (score,) = found["metrics"].values()
    record = {name: last[name] for name in ("tokens", "seconds")}
    record |= {"recipe": recipe["name"], "score": score, "examples": found["examples"]}
    return record | trainer.score(load_model(out), corpus) | {"threads": torch.get_num_threads()}


def main() -> None:
    """Pretrain, and score."""
    names = [*ENGINES, TOKENS]
    options = parse(__doc__, names, runs=RUNS, minutes=[4.0, 12.0, 36.0], millions=[16.0], seeds=[0], pairs=50)
    folder = options.runs / "grammar"
    corpus = english_corpus(folder / "text", VOCABULARY, lowercase=False)
    with ZipFile(common.SHARED / "probes/blimp.zip") as archive:
        archive.extractall(folder / "blimp")
    for minutes in sorted(options.minutes):
        for engine in [name for name in options.names if name in ENGINES]:
            out = folder / f"{engine}-{minutes:g}"
            ENGINES[engine](corpus, out, minutes)
            record = scored(out, corpus, folder / "blimp/data", options.pairs)
            add("grammar", {"engine": engine, "minutes": minutes}, record)
    for seed in options.seeds if TOKENS in options.names else ():
        for millions in sorted(options.millions):
            out = folder / f"{TOKENS}-{millions:g}-{seed}"
            budget = {"budget.minutes": None, "budget.tokens": 1e6 * millions, "seed": seed}
            pretrain(corpus, out, "modernbert-mini", settings=budget)
            record = scored(out, corpus, folder / "blimp/data", options.pairs)
            add("grammar", {"engine": TOKENS, "millions": millions, "seed": seed}, record)


if __name__ == "__main__":
    main()
