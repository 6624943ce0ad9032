"""What takes a small model off the plateau of frequent words? Short sequences first, many hidden tokens, small steps.

Masked language modelling alone, on English Wikipedia and news: a bert-mini with a vocabulary of 8,000, no dropout, the
same learning rate throughout after the warm-up. One run has all three, each other one lacks one of them (`CASES`). All
are scored on the same held-out sequences of 128 with 15 % of their tokens hidden. Runs that were cut off go on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common import RESULTS, add, logged, read
from pretrain_mini import HELDOUT, TRAIN, prepare

import unmask

SHORT_FIRST = "layout.stages=[{share=0.3,length=32},{share=0.7,length=128}]"
SETTINGS = [
    "objective.next_sentence=false",
    "layout.kind=document_sentences",
    SHORT_FIRST,
    "encoder.dropout=0",
    "masking.rate=0.4",
    "masking.final_rate=0.15",
    "batch.tokens=1024",
    "optimizer.learning_rate=7e-4",
    "schedule.kind=constant",
    "schedule.warmup=0.02",
]
CASES = {
    "all": [],
    "long": ["layout.length=128"],
    "few-hidden": ["masking.rate=0.15"],
    "large-steps": ["batch.tokens=4096"],
}


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, default=4e6, help="of each run")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--runs", type=Path, default=Path("runs/plateau"), help="where everything is kept")
    options = parser.parse_args()
    corpus = prepare(options.runs, HELDOUT, TRAIN, vocabulary=8000)
    known = {run["case"] for run in read(RESULTS / "plateau.json").get("runs", [])}
    for case in options.cases:
        if case in known:
            continue
        out = options.runs / case
        recipe = unmask.read_recipe("bert-mini", [*SETTINGS, *CASES[case], f"budget.tokens={options.tokens:.0f}"])
        unmask.pretrain(recipe, corpus, out, resume=(out / "recipe.toml").exists())
        last = logged(out)[-1]
        about = {name: last[name] for name in ("step", "tokens", "seconds")}
        add("plateau", {"case": case, **about, "heldout": logged(out, "heldout")})


if __name__ == "__main__":
    main()
