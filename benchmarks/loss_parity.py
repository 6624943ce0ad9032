"""Does the fast engine learn as much from the same tokens as the Hugging Face Trainer in float32?

A bert-mini learns masked language modeling from English Wikipedia and news (no sentence pairs): ours by
`unmask.pretrain` in bf16 with the recipe's settings; the peer, `BertForMaskedLM` under the Trainer in float32, from the
same sequences in the same order with masks of its own collator, with the same batch, schedule, optimizer, clipping and
dropout. Both are scored on the same held-out sequences with the same masks. What is finished is not computed again.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import trainer
from common import RUNS, add, logged, parse
from files import english_corpus
from pretrain_speed import AS_TRAINER

import unmask
from unmask.data.batches.batch import Sample
from unmask.data.batches.curriculum import Feed
from unmask.data.corpus.corpus import Corpus
from unmask.recipes.recipe import Recipe
from unmask.support.choices import Precision

SEQUENCES, TOKENS = 32, 5_000_000
SETTINGS: dict[str, Any] = AS_TRAINER | {
    "optimizer.learning_rate": 5e-4,
    "encoder.dropout": 0.1,
    "layout.kind": "document_sentences",
    "objective.next_sentence": False,
    "batch.sequences": SEQUENCES,
    "budget.tokens": TOKENS,
}
PRECISION: Precision = "bf16"


def train_ours(recipe: Recipe, corpus: Corpus, run: Path) -> list[dict[str, Any]]:
    """Pretrain or resume; return the held-out curve."""
    if not (run / "model").exists():
        resume = (run / "provenance.json").exists()
        unmask.pretrain(recipe, corpus, out=run, resume=resume, device="cpu", precision=PRECISION)
    return logged(run, "heldout")


def sequences(recipe: Recipe, corpus: Corpus) -> list[list[Sample]]:
    """Return the samples of each step of the budget, in order."""
    feed = Feed(recipe.layout, recipe.masking, recipe.seed, corpus.tokenizer, lambda sample: sample)
    source, steps, tokens = feed.source(corpus.train), list[list[Sample]](), 0
    cursor = source.start
    while tokens < (recipe.budget.tokens or 0):
        taken, cursor = source.take(cursor, sequences=SEQUENCES)
        steps.append(taken)
        tokens += sum(map(len, taken))
    return steps


def train_peer(recipe: Recipe, corpus: Corpus, out: Path) -> list[dict[str, Any]]:
    """Train `BertForMaskedLM` with the Trainer, unless that is done; return the held-out curve."""
    steps = sequences(recipe, corpus)
    examples = [
        {
            "input_ids": sample.ids.tolist(),
            "token_type_ids": [0] * len(sample) if sample.segments is None else sample.segments.tolist(),
            "attention_mask": [1] * len(sample),
            "special_tokens_mask": [int(id in corpus.tokenizer.special_ids) for id in sample.ids.tolist()],
        }
        for sample in chain.from_iterable(steps)
    ]
    settings = {
        "train_sampling_strategy": "sequential",
        "per_device_train_batch_size": SEQUENCES,
        "warmup_steps": round(recipe.schedule.warmup * len(steps)),
        "weight_decay": recipe.optimizer.weight_decay,
        "adam_epsilon": recipe.optimizer.epsilon,
        "max_grad_norm": recipe.optimizer.clip,
    }
    if not (out / "model").exists():
        trainer.pretrain(recipe, corpus, out, examples, settings, len(steps))
    return logged(out, "heldout")


def main() -> None:
    """Train what is missing and write the curves."""
    options = parse(__doc__, ("unmask", "trainer"), runs=RUNS)
    recipe, runs = unmask.read_recipe("bert-mini", SETTINGS), options.runs / "loss-parity"
    corpus = english_corpus(runs / "text", 30522)
    for engine in options.names:
        if engine == "unmask":
            name, curve = f"unmask {PRECISION}", train_ours(recipe, corpus, runs / "unmask")
        else:
            name, curve = "trainer float32", train_peer(recipe, corpus, runs / "trainer")
        add("loss_parity", {"engine": name}, {"settings": SETTINGS, "heldout": curve})


if __name__ == "__main__":
    main()
