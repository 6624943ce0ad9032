"""Masked-LM pretraining as most people do it: `BertForMaskedLM` under the Hugging Face Trainer, of bert-mini's size.

`minutes`: for half an hour, twice: with the defaults of transformers' own script for masked language modeling, and
tuned: in bf16, with larger batches, warm-up, without dropout, and at the best learning rate of those tried for an
eighth of the time. comparisons/minutes.toml tells what the latter is good for. Like transformers' run_mlm.py: documents
with their special tokens are concatenated and cut into sequences of 128, and its collator masks 15 %. The budget
becomes steps by timing a few, so that the learning rate reaches 0 at the end, as in unmask. Only time in steps counts.

`tokens`: does the fast engine learn as much from the same tokens? `unmask.pretrain` in bf16, with AdamW and a constant
rate of masked tokens, and the Trainer in float32, from the same sequences of single texts in the same order with masks
of its own collator, with the same batch, schedule, optimizer, clipping and dropout.

Checkpoints along the way are scored as our runs are, on the same held-out sequences with the same masks. `keep_memory`
(see unmask.training.machine) is on, which speeds the peer up. What is finished is not computed again.
"""

from __future__ import annotations

import json
import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import RUNS, add, logged, parse
from files import english_corpus
from pretrain_speed import AS_TRAINER

import unmask
from unmask.data.batches.batch import Sample
from unmask.data.batches.curriculum import Feed
from unmask.data.batches.layout import DocumentSentencesSettings
from unmask.data.batches.masking import TokenMaskingSettings
from unmask.data.corpus.corpus import Corpus
from unmask.model.model import Model, load_model
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.recipes.recipe import Recipe
from unmask.support.choices import Precision
from unmask.support.settings import write
from unmask.training.evaluate import evaluate
from unmask.training.machine import choose_machine, keep_memory
from unmask.workflows.pretraining.pretrain import HELDOUT_TOKENS

MINUTES = 30.0
SETTINGS: dict[str, Any] = {"stages": [], "optimizer.kind": "adamw"}
DEFAULT = {"optimizer.learning_rate": 5e-5, "encoder.dropout": 0.1}
TUNED: dict[str, Any] = {"bf16": True, "per_device_train_batch_size": 16, "warmup_steps": 0.05, "weight_decay": 0.01}
"""Arguments of the Trainer."""
RATES, SHARE = (2.5e-4, 5e-4, 1e-3, 2e-3), 8
"""Learning rates that are tried, each for one in `SHARE` of the time."""
SEQUENCES = 32
SAME: dict[str, Any] = AS_TRAINER | {
    "optimizer.learning_rate": 5e-4,
    "encoder.dropout": 0.1,
    "layout.kind": "document_sentences",
    "objective.next_sentence": False,
    "batch.sequences": SEQUENCES,
    "budget.tokens": 5_000_000,
}
"""Settings with which both learn from the same tokens."""
PRECISION: Precision = "bf16"
LENGTH, RATE = 128, 0.15
CHECKPOINTS = 15
TIMED_STEPS = 8
BLOCK = 1000
"""Documents that are concatenated at a time."""
Examples = list[dict[str, list[int]]]
"""Sequences, as the collator of masked language modeling takes them."""


def concatenated(corpus: Corpus) -> Examples:
    """Return sequences of `LENGTH` tokens from shuffled documents."""
    tokenizer, documents = corpus.tokenizer, corpus.train
    order = np.random.default_rng(0).permutation(len(documents))
    found: Examples = []
    for start in range(0, len(order), BLOCK):
        ids: list[int] = []
        for index in order[start : start + BLOCK]:
            ids += [tokenizer.cls, *chain.from_iterable(part.tolist() for part in documents.sentences(int(index)))]
            ids.append(tokenizer.sep)
        found += [{"input_ids": ids[at : at + LENGTH]} for at in range(0, len(ids) - LENGTH + 1, LENGTH)]
    return found


def as_ours(recipe: Recipe, corpus: Corpus) -> tuple[Examples, int]:
    """Return the sequences of our run in their order, and the number of its steps."""
    special = corpus.tokenizer.special_ids
    feed = Feed(recipe.layout, recipe.masking, recipe.seed, corpus.tokenizer, lambda sample: sample)
    source, samples, tokens, steps = feed.source(corpus.train), list[Sample](), 0, 0
    cursor = source.start
    while tokens < (recipe.budget.tokens or 0):
        taken, cursor = source.take(cursor, sequences=SEQUENCES)
        samples += taken
        tokens += taken.tokens
        steps += 1
    examples = [
        {
            "input_ids": sample.ids.tolist(),
            "token_type_ids": [0] * len(sample) if sample.segments is None else sample.segments.tolist(),
            "attention_mask": [1] * len(sample),
            "special_tokens_mask": [int(id in special) for id in sample.ids.tolist()],
        }
        for sample in samples
    ]
    return examples, steps


def pretrain(
    recipe: Recipe, corpus: Corpus, out: Path, examples: Examples, settings: dict[str, Any], steps: int | None = None
) -> None:
    """Train, and leave `out`/model, recipe.toml and metrics.jsonl as our runs do.

    Args:
        recipe: size, dropout, learning rate, budget in minutes, seed.
        corpus: text, with its tokenizer.
        out: folder, begun anew.
        examples: what is read.
        settings: of the Trainer's arguments those that are not by default.
        steps: number of steps; None: as many as the budget in minutes is enough for.
    """
    import peers

    shutil.rmtree(out, ignore_errors=True)
    keep_memory()
    corpus.tokenizer.save(out / "tokenizer")
    mask, clock = peers.masking(out / "tokenizer", RATE), peers.Clock()

    def train(steps: int) -> None:
        torch.manual_seed(recipe.seed)
        values: dict[str, Any] = {"max_steps": steps, "seed": recipe.seed}
        values["learning_rate"] = recipe.optimizer.learning_rate
        values |= {"save_strategy": "steps", "save_steps": max(1, steps // CHECKPOINTS), "save_only_model": True}
        body = peers.masked_lm(recipe.encoder, corpus.tokenizer)
        peers.trainer(body, examples, mask, out / "checkpoints", clock=clock, **values, **settings).train()

    if steps is None:
        train(TIMED_STEPS)
        steps = int((recipe.budget.minutes or 0) * 60 / np.median(np.diff(clock.ends)[2:]))
        shutil.rmtree(out / "checkpoints")
    train(steps)
    batch = settings.get("per_device_train_batch_size", 8)
    lengths = np.resize([len(one["input_ids"]) for one in examples], steps * batch).cumsum()
    lines: list[dict[str, Any]] = []
    for step, seconds in clock.saved.items():
        model, line = out / f"checkpoints/checkpoint-{step}", {"step": step, "tokens": int(lengths[step * batch - 1])}
        corpus.tokenizer.save(model)
        epochs = round(step * batch / len(examples), 4)
        lines.append({"kind": "train", **line, "seconds": seconds, "epochs": epochs})
        lines.append({"kind": "heldout", **line, **score(load_model(model), corpus)})
    (out / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf8")
    (out / "recipe.toml").write_text(write(recipe), encoding="utf8")
    model.rename(out / "model")
    shutil.rmtree(out / "checkpoints")


def score(model: Model, corpus: Corpus) -> dict[str, float]:
    """Return loss and accuracy on held-out sequences of `LENGTH` with 15 % single tokens masked."""
    head = MaskedLM(BuildContext(model.encoder))
    if model.take("masked_lm", head):
        raise ValueError("the model has no masked-LM head")
    learner = Learner(model.encoder, {"masked_lm": head})
    layout = DocumentSentencesSettings(length=LENGTH)
    feed = Feed(layout, TokenMaskingSettings(), 0, corpus.tokenizer, learner.prepare)
    return evaluate(learner, feed.heldout(corpus.heldout, HELDOUT_TOKENS), choose_machine("cpu", "float32"))


def run(corpus: Corpus, out: Path, minutes: float, settings: dict[str, Any], arguments: dict[str, Any]) -> float:
    """Pretrain for some minutes where that is not done; return the loss at the end."""
    if not (out / "model").exists():
        recipe = unmask.read_recipe("bert-mini", {**SETTINGS, **settings, "budget.minutes": minutes})
        pretrain(recipe, corpus, out, concatenated(corpus), arguments)
    return float(logged(out, "heldout")[-1]["loss"])


def half_an_hour(folder: Path) -> None:
    """Pretrain by default and tuned, and add the learning curves of both."""
    corpus = english_corpus(folder / "text", 8000)
    run(corpus, folder / "default", MINUTES, DEFAULT, {})
    losses = {}
    for rate in RATES:
        settings = {"optimizer.learning_rate": rate}
        losses[rate] = run(corpus, folder / f"tried-{rate:g}", MINUTES / SHARE, settings, TUNED)
    best = min(losses, key=losses.__getitem__)
    run(corpus, folder / "tuned", MINUTES, {"optimizer.learning_rate": best}, TUNED)
    searched = {f"{rate:.3g}": loss for rate, loss in losses.items()}
    for case, out, rate, tried in (
        ("trainer", folder / "default", DEFAULT["optimizer.learning_rate"], {}),
        ("trainer-tuned", folder / "tuned", best, searched),
    ):
        last = logged(out)[-1]
        record = {name: last[name] for name in ("step", "tokens", "seconds", "epochs")} | {"learning_rate": rate}
        record |= {"searched": tried, "end": score(load_model(out), corpus), "heldout": logged(out, "heldout")}
        add("minutes", {"case": case}, record)


def same_tokens(folder: Path) -> None:
    """Let both learn from the same tokens, and add their curves."""
    corpus, recipe = english_corpus(folder / "text", 30522), unmask.read_recipe("bert-mini", SAME)
    ours, theirs = folder / "unmask", folder / "trainer"
    if not (ours / "model").exists():
        resume = (ours / "provenance.json").exists()
        unmask.pretrain(recipe, corpus, out=ours, resume=resume, device="cpu", precision=PRECISION)
    if not (theirs / "model").exists():
        examples, steps = as_ours(recipe, corpus)
        settings = {
            "train_sampling_strategy": "sequential",
            "per_device_train_batch_size": SEQUENCES,
            "warmup_steps": round(recipe.schedule.warmup * steps),
            "weight_decay": recipe.optimizer.weight_decay,
            "adam_epsilon": recipe.optimizer.epsilon,
            "max_grad_norm": recipe.optimizer.clip,
        }
        pretrain(recipe, corpus, theirs, examples, settings, steps)
    for engine, out in ((f"unmask {PRECISION}", ours), ("trainer float32", theirs)):
        add("loss_parity", {"engine": engine}, {"settings": SAME, "heldout": logged(out, "heldout")})


def main() -> None:
    """Pretrain."""
    options = parse(__doc__, ("minutes", "tokens"), runs=RUNS)
    if "minutes" in options.names:
        half_an_hour(options.runs / "trainer")
    if "tokens" in options.names:
        same_tokens(options.runs / "loss-parity")


if __name__ == "__main__":
    main()
