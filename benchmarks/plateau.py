"""What takes a small model off the plateau of frequent words, and which ideas of the family keep it there?

Masked language modelling on English Wikipedia and news: a bert-mini with a vocabulary of 8,000, no dropout, the same
learning rate throughout after the warm-up. The first run has short sequences first, many hidden tokens and small steps;
each of the next ones lacks one of them, each of the others has an idea of the family besides (`CASES`). All are scored
on the same held-out sequences of 128 with 15 % of their tokens hidden, one by one. Runs that were cut off go on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common import RESULTS, add, logged, read
from pretrain_mini import HELDOUT, TRAIN, prepare

import unmask
from unmask.batches.document_sentences import DocumentSentencesSettings
from unmask.batches.feed import Feed
from unmask.batches.token_masking import TokenMaskingSettings
from unmask.corpus.corpus import Corpus
from unmask.model import load_model
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.pretraining.pretrain import HELDOUT_TOKENS
from unmask.settings import parse_overrides
from unmask.training.evaluate import evaluate
from unmask.training.machine import choose_machine

SHORT = 0.3
SHORT_FIRST = f"layout.stages=[{{share={SHORT},length=32}},{{share={1 - SHORT},length=128}}]"
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
    "pairs": ["layout.kind=sentence_pairs", "layout.second=random", "objective.next_sentence.weight=1"],
    "ngrams": ["masking.kind=ngram"],
    "spans": ["masking.kind=span"],
    "narrow": ["encoder.kind=albert", "encoder.shared=none", "encoder.embedding=128"],
    "narrow-electra": ["encoder.kind=electra", "encoder.embedding=128"],  # projected by a matrix drawn by Glorot's rule
    "shared": ["encoder.kind=albert", "encoder.shared=all"],
}


def score(run: Path, corpus: Corpus) -> dict[str, float]:
    """Return loss and accuracy of single hidden tokens, whatever was hidden in training."""
    model = load_model(run)
    head = MaskedLM(BuildContext(model.encoder))
    if model.take("masked_lm", head):
        raise ValueError(f"{run} has no masked-LM head")
    learner = Learner(model.encoder, {"masked_lm": head})
    feed = Feed(DocumentSentencesSettings(length=128), TokenMaskingSettings(), 0, corpus.tokenizer, learner.prepare)
    return evaluate(learner, feed.heldout(corpus.heldout, HELDOUT_TOKENS), choose_machine("cpu", "float32"))


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, default=3e6, help="of each run")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--runs", type=Path, default=Path("runs/plateau"), help="where everything is kept")
    options = parser.parse_args()
    corpus = prepare(options.runs, HELDOUT, TRAIN, vocabulary=8000)
    known = {run["case"] for run in read(RESULTS / "plateau.json").get("runs", [])}
    for case in options.cases:
        if case in known:
            continue
        out = options.runs / case
        recipe = unmask.read_recipe(
            "bert-mini", parse_overrides([*SETTINGS, *CASES[case], f"budget.tokens={options.tokens:.0f}"])
        )
        unmask.pretrain(recipe, corpus, out, resume=(out / "recipe.toml").exists())
        last = logged(out)[-1]
        about = {name: last[name] for name in ("step", "tokens", "seconds")}
        add("plateau", {"case": case, **about, "end": score(out, corpus), "heldout": logged(out, "heldout")})


if __name__ == "__main__":
    main()
