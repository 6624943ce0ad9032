"""Fine-tuning against features: how much is lost where the encoder stays frozen, under which small model?

Two tasks, of single texts and of pairs, and two starts: the MiniLM checkpoint, and random weights in the same body.
Every run has the defaults of its kind and is scored once, on data that served no choice; `static` reads the embeddings
below all layers. All methods read the same examples in the same order.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import RESULTS, SHARED, add, logged, minilm, random_start, read

import unmask


@dataclass(frozen=True)
class Data:
    """A task: its kind, its files, how many training examples at most, the score that is shown."""

    task: str
    train: Path
    dev: Path
    examples: int
    metric: str


DATA = {
    "sst2": Data(
        "classification",
        SHARED / "classification/sst2/train.tsv.xz",
        SHARED / "classification/sst2/dev.tsv",
        5_000,
        "accuracy",
    ),
    "sick-entailment": Data(
        "classification",
        SHARED / "pairs/sick/SICK_train.txt.xz",
        SHARED / "pairs/sick/SICK_test_annotated.txt.xz",
        5_000,
        "accuracy",
    ),
}
METHODS: dict[str, dict[str, Any]] = {
    "fine-tuned": {},
    "linear": {"frozen": True, "downstream": "linear"},
    "average": {"frozen": True, "downstream": "average"},
    "rnn": {"frozen": True, "downstream": "rnn"},
    "static average": {"frozen": True, "downstream": "average", "settings": {"downstream.layers": [0]}},
    "static rnn": {"frozen": True, "downstream": "rnn", "settings": {"downstream.layers": [0]}},
}
STARTS = ("minilm", "random")


def write_sample(data: Data, examples: int, folder: Path) -> Path:
    """Write so many training examples, the same for every run."""
    with lzma.open(data.train, "rt", encoding="utf8") as file:
        header, *lines = file.read().splitlines()
    random.Random(0).shuffle(lines)
    path = folder / "train.tsv"
    path.write_text("\n".join([header, *lines[:examples]]) + "\n", encoding="utf8")
    return path


def train(name: str, start: str, method: str, seed: int, folder: Path, *, toy: bool) -> dict[str, Any]:
    """Train and score once."""
    data = DATA[name]
    chosen = dict(METHODS[method])
    settings = chosen.pop("settings", {}) | {"seed": seed} | ({"budget.steps": 2} if toy else {})
    begun = time.time()
    unmask.finetune(
        data.task,
        minilm() if start == "minilm" else random_start(minilm(), folder),
        [write_sample(data, 64 if toy else data.examples, folder)],
        folder / "run",
        dev=[data.dev],
        tokenizer=None if start == "minilm" else minilm(),
        settings=settings,
        quiet=True,
        **chosen,
    )
    last = logged(folder / "run")[-1]
    scored = json.loads((folder / "run/dev.json").read_bytes())
    run: dict[str, Any] = {"data": name, "start": start, "method": method, "seed": seed, "metric": data.metric}
    return run | {
        "score": scored["metrics"][data.metric],
        "interval": scored["intervals"][data.metric],
        "examples": sum(1 for _ in (folder / "train.tsv").open(encoding="utf8")) - 1,
        "passes": last["passes"],
        "step_seconds": last["seconds"],
        "seconds": round(time.time() - begun, 1),
    }


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--toy", action="store_true", help="two steps on 64 examples; nothing is written down")
    options = parser.parse_args()
    done = {
        (run["data"], run["start"], run["method"], run["seed"])
        for run in read(RESULTS / "features.json").get("runs", [])
    }
    for name in options.data:
        for start in options.starts:
            for method in options.methods:
                for seed in options.seeds:
                    if (name, start, method, seed) in done and not options.toy:
                        continue
                    with tempfile.TemporaryDirectory() as folder:
                        run = train(name, start, method, seed, Path(folder), toy=options.toy)
                    if options.toy:
                        print(run, flush=True)
                    else:
                        add("features", run)


if __name__ == "__main__":
    main()
