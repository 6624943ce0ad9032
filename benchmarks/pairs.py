"""Pairs of texts and acceptability: how good is fine-tuning with default settings on small public sets?

Each set is trained on its whole training part; the score is that of the last step on a part that served no choice.
MiniLM is a sentence-embedding model whose training data include the texts of SNLI (and of MNLI and SQuAD): its scores
there, and on what resembles them, are no scores of a model that has not seen them. `random` is the same body with
random weights, `pooler-anew` is MiniLM with a pooler drawn anew (`reset = 0`), as what it was trained for never used
its pooler. RTE and CoLA are hard for small models: at this size scores near the majority are usual.
"""

from __future__ import annotations

import argparse
import json
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

from common import RESULTS, SHARED, add, logged, minilm, random_start, read

import unmask
from unmask.settings import Overrides

PAIRS, SINGLE = SHARED / "pairs", SHARED / "classification"


class Set(NamedTuple):
    """What is trained on, what is scored on, and the official metrics; SICK's columns go by the task."""

    task: str
    train: list[Path]
    test: Path
    metrics: list[str]


WALKS, SITS = "the dog walks", "the dog sits still"
SICK = [PAIRS / "sick/SICK_train.txt.xz"], PAIRS / "sick/SICK_test_annotated.txt.xz"
SETS = {
    "sick-entailment": Set("classification", *SICK, ["accuracy"]),
    "sick-relatedness": Set("regression", *SICK, ["pearson", "spearman"]),
    "rte": Set("classification", [PAIRS / "rte/train.tsv.xz"], PAIRS / "rte/dev.tsv", ["accuracy"]),
    "snli-2000": Set(
        "classification", [PAIRS / "snli/train_2000.jsonl.xz"], PAIRS / "snli/test_2000.jsonl.xz", ["accuracy"]
    ),
    "mrpc": Set(
        "classification",
        [PAIRS / "mrpc/msr-para-train.tsv.xz", PAIRS / "mrpc/msr-para-val.tsv"],
        PAIRS / "mrpc/msr-para-test.tsv.xz",
        ["accuracy", "f1"],
    ),
    "cola": Set(
        "classification",
        [SINGLE / "cola/in_domain_train.tsv"],
        SINGLE / "cola/in_domain_dev.tsv",
        ["matthews_correlation"],
    ),
}


def run(name: str, start: str, seed: int, runs: Path, settings: Overrides) -> dict[str, object]:
    """Fine-tune, or go on where a run was cut off, and return what is written down of it."""
    chosen, out = SETS[name], runs / f"{name}-{start}-{seed}"
    begun = time.time()
    unmask.finetune(
        chosen.task,
        random_start(minilm(), runs) if start == "random" else "random:bert-tiny" if start == "toy" else minilm(),
        chosen.train,
        out,
        dev=[chosen.test],
        settings={"seed": seed, **settings, **({"reset": 0} if start == "pooler-anew" else {})},
        tokenizer=minilm() if start in ("random", "toy") else None,
        resume=(out / "recipe.toml").exists(),
    )
    seconds = time.time() - begun
    last = logged(out)[-1]
    asked: dict[str, object] = {}
    if name == "snli-2000":  # the pair that the docs ask
        (said,) = unmask.load(out).predict([WALKS], [SITS])
        asked = {"asked": {"text": WALKS, "text_b": SITS, "label": said.label, "scores": said.scores}}
    result = json.loads((out / "dev.json").read_bytes())
    return {
        "set": name,
        "start": start,
        "seed": seed,
        "metrics": result["metrics"],
        "intervals": result["intervals"],
        "examples": result["examples"],
        **asked,
        **{key: last[key] for key in ("step", "passes", "tokens")},
        "step_seconds": last["seconds"],
        "seconds": round(seconds, 1),
        "recipe": tomllib.loads((out / "recipe.toml").read_text()),
    }


def main() -> None:
    """Run the sets and seeds that are missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--start", choices=("minilm", "random", "pooler-anew"), default="minilm")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/pairs"), help="where run directories are kept")
    parser.add_argument("--toy", action="store_true", help="three steps of a tiny model each, written down nowhere")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    known = {(it["set"], it["start"], it["seed"]) for it in read(RESULTS / "pairs.json").get("runs", [])}
    for name in options.sets:
        if options.toy:
            print(run(name, "toy", 0, options.runs, {"budget.steps": 3})["metrics"], flush=True)
            continue
        for seed in options.seeds:
            if (name, options.start, seed) not in known:
                add("pairs", run(name, options.start, seed, options.runs, {}))


if __name__ == "__main__":
    main()
