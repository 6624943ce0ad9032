"""How soon does a small model leave the plateau of frequent words? Masking rate and step size, a few million tokens.

Masked language modelling alone, on English Wikipedia and news: a bert-mini with a vocabulary of 8,000, sequences of 64,
no dropout, the same learning rate throughout after the warm-up. All are scored on the same held-out sequences with 15 %
of their tokens hidden. Runs that were cut off go on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common import RESULTS, add, logged, read
from pretrain_mini import HELDOUT, TRAIN, prepare

import unmask

SETTINGS = [
    "objective.next_sentence=false",
    "layout.kind=document_sentences",
    "layout.length=64",
    "encoder.dropout=0",
    "masking.final_rate=0.15",
    "optimizer.learning_rate=7e-4",
    "schedule.kind=constant",
    "schedule.warmup=0.02",
]
RATES, STEPS = (0.15, 0.4), (512, 1024, 4096)
"""Shares of the tokens that are hidden at first, and tokens of a step."""


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, default=3e6, help="of each run")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS, help="tokens of a step")
    parser.add_argument("--runs", type=Path, default=Path("runs/plateau"), help="where everything is kept")
    options = parser.parse_args()
    corpus = prepare(options.runs, HELDOUT, TRAIN, vocabulary=8000)
    known = {(run["rate"], run["step_tokens"]) for run in read(RESULTS / "plateau.json").get("runs", [])}
    for rate in options.rates:
        for step in options.steps:
            if (rate, step) in known:
                continue
            out = options.runs / f"rate-{rate:g}-step-{step}"
            settings = [f"masking.rate={rate}", f"batch.tokens={step}", f"budget.tokens={options.tokens:.0f}"]
            recipe = unmask.read_recipe("bert-mini", [*SETTINGS, *settings])
            unmask.pretrain(recipe, corpus, out, resume=(out / "recipe.toml").exists())
            last = logged(out)[-1]
            add(
                "plateau",
                {
                    "rate": rate,
                    "step_tokens": step,
                    **{name: last[name] for name in ("step", "tokens", "seconds")},
                    "heldout": logged(out, "heldout"),
                },
            )


if __name__ == "__main__":
    main()
