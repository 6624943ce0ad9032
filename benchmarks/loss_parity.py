"""Does the fast engine learn as much from the same tokens as the Hugging Face Trainer in float32?

A bert-mini learns masked language modeling from English Wikipedia and news (no sentence pairs): ours by
`unmask.pretrain` in bf16 with the recipe's settings; the peer, `BertForMaskedLM` under the Trainer in float32, from the
same sequences in the same order with masks of its own collator, with the same batch, schedule, optimizer, clipping and
dropout. Both are scored on the same held-out sequences with the same masks. Interrupted runs are resumed. `--toy` takes
seconds and a tiny body, in float32.
"""

from __future__ import annotations

from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import torch
from common import RUNS, add, logged, parse
from files import english_corpus
from pretrain_speed import AS_TRAINER, RATE
from trainer import score

import unmask
from unmask.data.batches.batch import Sample
from unmask.data.batches.curriculum import Feed
from unmask.data.corpus.corpus import Corpus
from unmask.model.model import load_model
from unmask.recipes.recipe import Recipe
from unmask.support.choices import Precision
from unmask.training.machine import keep_memory

SEQUENCES, TOKENS, SAVES = 32, 5_000_000, 10
SETTINGS: dict[str, Any] = AS_TRAINER | {
    "optimizer.learning_rate": 5e-4,
    "encoder.dropout": 0.1,
    "layout.kind": "document_sentences",
    "objective.next_sentence": False,
    "batch.sequences": SEQUENCES,
    "budget.tokens": TOKENS,
}
TOY = {
    "encoder.layers": 2,
    "encoder.width": 32,
    "encoder.heads": 2,
    "encoder.feed_forward": 64,
    "budget.tokens": 30_000,
}
TOY_CORPUS = (600, 60)
"""Size of the vocabulary, and number of documents."""


def train_ours(recipe: Recipe, corpus: Corpus, run: Path, precision: Precision) -> list[dict[str, Any]]:
    """Pretrain or resume; return the held-out curve."""
    if not (run / "model").exists():
        resume = (run / "provenance.json").exists()
        unmask.pretrain(recipe, corpus, out=run, resume=resume, device="cpu", precision=precision)
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
    """Train `BertForMaskedLM` with the Trainer, or resume; return the held-out curve of its checkpoints."""
    import peers
    import transformers
    from torch.utils.data import SequentialSampler

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

    class InOrder(transformers.Trainer):  # type: ignore[misc,unused-ignore]
        def _get_train_sampler(self, *args: Any) -> Any:
            return SequentialSampler(examples)

    keep_memory()  # changes no number
    optimizer = recipe.optimizer
    torch.manual_seed(recipe.seed)
    peers.trainer(
        peers.masked_lm(recipe.encoder, corpus.tokenizer),
        examples,
        peers.masking(corpus.directory / "tokenizer", RATE),
        out,
        clock=peers.Clock(),
        kind=InOrder,
        per_device_train_batch_size=SEQUENCES,
        max_steps=len(steps),
        learning_rate=optimizer.learning_rate,
        warmup_steps=round(recipe.schedule.warmup * len(steps)),
        weight_decay=optimizer.weight_decay,
        adam_epsilon=optimizer.epsilon,
        max_grad_norm=optimizer.clip,
        seed=recipe.seed,
        save_strategy="steps",
        save_steps=max(1, len(steps) // SAVES),
    ).train(resume_from_checkpoint=any(out.glob("checkpoint-*")))
    ends, curve = [0, *accumulate(sum(map(len, step)) for step in steps)], []
    for step, path in sorted((int(path.name.partition("-")[2]), path) for path in out.glob("checkpoint-*")):
        corpus.tokenizer.save(path)
        curve.append({"step": step, "tokens": ends[step], **score(load_model(path), corpus)})
    return curve


def main() -> None:
    """Train what is missing and write the curves."""
    options = parse(__doc__, ("unmask", "trainer"), runs=RUNS, toy=False)
    settings = SETTINGS | (TOY if options.toy else {})
    recipe, runs = unmask.read_recipe("bert-mini", settings), options.runs / "loss-parity"
    corpus = english_corpus(runs / "text", *(TOY_CORPUS if options.toy else (30522,)))
    precision: Precision = "float32" if options.toy else "bf16"
    for engine in options.names:
        if engine == "unmask":
            name, curve = f"unmask {precision}", train_ours(recipe, corpus, runs / "unmask", precision)
        else:
            name, curve = "trainer float32", train_peer(recipe, corpus, runs / "trainer")
        add("loss_parity", {"engine": name}, {"settings": settings, "heldout": curve})


if __name__ == "__main__":
    main()
