"""SST-2: how good, and how long, is fine-tuning with default settings on the full training set?

Trains on all 67,349 training phrases. The score on the 872 sentences of the dev set is that of the last step: they are
looked at along the way, but no setting was chosen and no run was stopped by them. MiniLM is a sentence-embedding model
whose training data include texts of other benchmarks (SNLI, MNLI, SQuAD), not SST-2's labels. `random` is the same body
with random weights.
"""

from __future__ import annotations

import argparse
import json
import time
import tomllib
from pathlib import Path

from common import RESULTS, SHARED, add, logged, minilm, random_start, read

import unmask

TRAIN, DEV = SHARED / "classification/sst2/train.tsv.xz", SHARED / "classification/sst2/dev.tsv"


def main() -> None:
    """Run the seeds that are missing; runs that were cut off are resumed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--start", choices=("minilm", "random"), default="minilm")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/sst2"), help="where run directories are kept")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    runs = read(RESULTS / "sst2.json").get("runs", [])
    for seed in options.seeds:
        if any(run["start"] == options.start and run["seed"] == seed for run in runs):
            continue
        out = options.runs / f"{options.start}-{seed}"
        begun = time.time()
        unmask.finetune(
            "classification",
            minilm() if options.start == "minilm" else random_start(minilm(), options.runs),
            [TRAIN],
            out,
            dev=[DEV],
            settings={"seed": seed},
            tokenizer=None if options.start == "minilm" else minilm(),
            resume=(out / "recipe.toml").exists(),
        )
        seconds = time.time() - begun
        last = logged(out)[-1]
        result = json.loads((out / "dev.json").read_bytes())
        add(
            "sst2",
            {
                "start": options.start,
                "seed": seed,
                "accuracy": result["metrics"]["accuracy"],
                "interval": result["intervals"]["accuracy"],
                "steps": last["step"],
                "passes": last["passes"],
                "tokens": last["tokens"],
                "step_seconds": last["seconds"],
                "seconds": round(seconds, 1),
                "recipe": tomllib.loads((out / "recipe.toml").read_text()),
            },
        )


if __name__ == "__main__":
    main()
