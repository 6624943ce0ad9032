"""Entities: how good is fine-tuning with default settings, and what does pretraining give where examples are few?

`--data conll2003`: English news, MiniLM (uncased, a sentence-embedding model) or the same body with random weights,
trained on eng.train, scored once on eng.testb; each sentence alone, without its document.
`--data resume_zh`: Chinese CVs, character by character, a tenth of the training sentences (each tenth one); a model
that was pretrained here (`--start RUN`) or its body with random weights (`--start random --body RUN`).

The dev files serve no choice: of them a few hundred sentences are looked at along the way. Scores are those of
conlleval, on the test file, after the last step. `--toy` only shows that everything runs.
"""

from __future__ import annotations

import argparse
import json
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import RESULTS, SHARED, add, logged, minilm, random_start, read

import unmask
from unmask.evaluation.model import evaluate_task
from unmask.labelled.tagged_file import read_sentences, write_columns
from unmask.model import find, load_model
from unmask.settings import Overrides

NER = SHARED / "ner"
DATA = {
    "conll2003": ([NER / f"conll2003/eng.{part}.xz" for part in ("train", "testa", "testb")], 1),
    "resume_zh": (
        [
            NER / f"resume_zh/{part}.char.bmes{end}"
            for part, end in zip(("train", "dev", "test"), (".xz", "", ""), strict=True)
        ],
        10,
    ),
}
"""Files to train on, to look at along the way, and to score on; and each how many-th sentence is trained on."""
WATCHED = 300
"""Sentences of the dev file that are looked at along the way."""


def excerpt(source: Path, to: Path, *, each: int = 1, most: int | None = None) -> Path:
    """Write each how many-th sentence of a file, and at most so many."""
    sentences = read_sentences([source], columns={})[::each][:most]
    to.write_text("".join(write_columns(sentence, sentence.tags) for sentence in sentences), encoding="utf8")
    return to


def tune(start: str, body: str, files: Sequence[Path], out: Path, settings: Overrides) -> dict[str, Any]:
    """Fine-tune, or go on, and score; return what is worth keeping."""
    train, dev, test = files
    begun = time.time()
    unmask.finetune(
        "token-classification",
        {"minilm": minilm(), "random": random_start(body, out.parent)}.get(start, start),
        [train],
        out,
        dev=[dev],
        settings=settings,
        tokenizer=find(body) if start == "random" else None,
        resume=(out / "recipe.toml").exists(),
    )
    seconds = time.time() - begun
    result = evaluate_task(load_model(out), [test], columns={})
    last = logged(out)[-1]
    return {
        **{name: result[name] for name in ("metrics", "intervals", "by_type", "examples")},
        **{name: last[name] for name in ("step", "passes", "tokens")},
        "step_seconds": last["seconds"],
        "seconds": round(seconds, 1),
        "recipe": tomllib.loads((out / "recipe.toml").read_text()),
    }


def main() -> None:
    """Run the seeds that are missing; runs that were cut off are resumed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=DATA, default="conll2003")
    parser.add_argument("--start", default="minilm", help="minilm, random, or a model")
    parser.add_argument("--body", help="whose shape and vocabulary `random` takes (default: MiniLM's)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/token-classification"), help="where runs are kept")
    parser.add_argument("--toy", action="store_true", help="two steps on 350 sentences; nothing is written down")
    options = parser.parse_args()
    (train, dev, test), each = DATA[options.data]
    folder = options.runs / (f"{options.data}-toy" if options.toy else options.data)
    folder.mkdir(parents=True, exist_ok=True)
    most = 350 if options.toy else None
    files = [
        excerpt(train, folder / "train.conll", each=each, most=most) if each > 1 or options.toy else train,
        excerpt(dev, folder / "dev.conll", most=most or WATCHED),
        excerpt(test, folder / "test.conll", most=most) if options.toy else test,
    ]
    body = options.body or minilm()
    name = options.start if options.start in ("minilm", "random") else Path(options.start).resolve().name
    runs = read(RESULTS / "token_classification.json").get("runs", [])
    for seed in options.seeds:
        run = {"data": options.data, "each": each, "start": name, "body": Path(body).name, "seed": seed}
        if not options.toy and any(run.items() <= other.items() for other in runs):
            continue
        settings = {"seed": seed} | ({"budget.steps": 2} if options.toy else {})
        run |= tune(options.start, body, files, folder / f"{name}-{Path(body).name}-{seed}", settings)
        if options.toy:
            print(json.dumps(run["metrics"]))
        else:
            add("token_classification", run)


if __name__ == "__main__":
    main()
