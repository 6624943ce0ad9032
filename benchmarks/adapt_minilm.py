"""What does adapting a published checkpoint to one's own text give, against starting from random weights?

MiniLM goes on with masked language modelling on news (`shared/data/text/wikinews`); its masked-LM head is new, for the
published sentence-embedding model has none. Beside it the same body from random weights, with the same vocabulary,
text, steps and masks.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
from common import SHARED, logged, minilm, write

import unmask
from unmask.model import load_model
from unmask.settings import parse_overrides

NEWS = SHARED / "text/wikinews"
SETTINGS = [
    "layout.kind=document_sentences",
    "objective.next_sentence=false",
    "batch.tokens=4096",
    "masking.rate=0.15",
    "optimizer.learning_rate=3e-4",
    "optimizer.betas=[0.9,0.999]",
]


def main() -> None:
    """Run both starts, or go on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--runs", type=Path, default=Path("runs/adapt-minilm"), help="where everything is kept")
    options = parser.parse_args()
    folder = options.runs / "corpus"
    if not folder.exists():
        tokenizer = unmask.load_tokenizer(minilm())
        unmask.build_corpus(
            [NEWS / "train.jsonl.xz"], tokenizer, folder, heldout=[NEWS / "heldout.jsonl.xz"], report=print
        )
    corpus = unmask.open_corpus(folder)
    recipe = unmask.read_recipe("bert-mini", parse_overrides([*SETTINGS, f"budget.steps={options.steps}"]))
    recipe = msgspec.structs.replace(recipe, encoder=load_model(minilm()).encoder.settings)
    starts = {}
    for start in ("minilm", "random"):
        run = options.runs / start
        if not (run / "model").exists():
            init = minilm() if start == "minilm" else None
            unmask.pretrain(recipe, corpus, run, init=init, resume=(run / "recipe.toml").exists())
        last = logged(run)[-1]
        starts[start] = {
            "steps": last["step"],
            "tokens": last["tokens"],
            "seconds": last["seconds"],
            "heldout": logged(run, "heldout"),
        }
        guess = logged(run, "guess")[0]
    write("adapt_minilm", {"guess": guess, "settings": SETTINGS, "starts": starts})


if __name__ == "__main__":
    main()
