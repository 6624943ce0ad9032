"""How much grammar is learned per minute, by `unmask pretrain` and by the Hugging Face Trainer?

From the same text, with the same vocabulary, each has 4, 12 and 36 minutes, in runs whose learning rates end at 0: ours
as it chooses by default; the Trainer with BERT of bert-mini's size, tuned as in trainer.py, at the rate that was best
there. Scored are the first pairs of each paradigm of BLiMP, and the masked tokens of held-out text that are predicted.
One seed. To let both run beside each other, start the command once for each engine, with one thread each
(`OMP_NUM_THREADS=1`). What is finished is not computed again.
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


def ours(corpus: Corpus, out: Path, minutes: float) -> None:
    """Pretrain by default."""
    if not (out / "model").exists():
        unmask.pretrain(
            corpus=corpus, out=out, minutes=minutes, device=DEVICE, resume=(out / "provenance.json").exists()
        )


def theirs(corpus: Corpus, out: Path, minutes: float) -> None:
    """Pretrain with the Trainer."""
    in_bf16 = choose_machine(DEVICE).precision == "bf16"
    trainer.run(corpus, out, minutes, {"optimizer.learning_rate": RATE}, trainer.TUNED | {"bf16": in_bf16})


ENGINES = {"unmask": ours, "trainer-tuned": theirs}


def main() -> None:
    """Pretrain, and score."""
    options = parse(__doc__, ENGINES, runs=RUNS, minutes=[4.0, 12.0, 36.0], pairs=50)
    folder = options.runs / "grammar"
    corpus = english_corpus(folder / "text", VOCABULARY, lowercase=False)
    with ZipFile(common.SHARED / "probes/blimp.zip") as archive:
        archive.extractall(folder / "blimp")
    for minutes in sorted(options.minutes):
        for engine in options.names:
            out = folder / f"{engine}-{minutes:g}"
            ENGINES[engine](corpus, out, minutes)
            recipe = tomllib.loads((out / "recipe.toml").read_text(encoding="utf8"))
            last: dict[str, Any] = logged(out)[-1]
            blimp = unmask.evaluate(out, [folder / "blimp/data"], suite="blimp", limit=options.pairs, quiet=True)
            (score,) = blimp["metrics"].values()
            record = {name: last[name] for name in ("tokens", "seconds")}
            record |= {"recipe": recipe["name"], "score": score, "examples": blimp["examples"]}
            record |= trainer.score(load_model(out), corpus) | {"threads": torch.get_num_threads()}
            add("grammar", {"engine": engine, "minutes": minutes}, record)


if __name__ == "__main__":
    main()
