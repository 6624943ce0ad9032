"""Masked-LM pretraining as most people do it: `BertForMaskedLM` under the Hugging Face Trainer, for some minutes.

Twice, of the size of bert-mini: with the defaults of transformers' own script for masked language modeling, and tuned:
in bf16, with larger batches, warm-up, without dropout, and at the best learning rate of those tried for an eighth of
the time. comparisons/minutes.toml tells what the latter is good for.

Like transformers' run_mlm.py: documents with their special tokens are concatenated and cut into sequences of 128, and
its collator masks 15 %. The budget in minutes becomes steps by timing a few, so that the learning rate reaches 0 at the
end, as in unmask. Only time in steps counts. Checkpoints along the way are scored as our runs are. `keep_memory` (see
unmask.training.machine) is on, which speeds the peer up.
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

import unmask
from unmask.data.batches.curriculum import Feed
from unmask.data.batches.layout import DocumentSentencesSettings
from unmask.data.batches.masking import TokenMaskingSettings
from unmask.data.corpus.corpus import Corpus
from unmask.model.model import Model, load_model
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLM
from unmask.objectives.objective import BuildContext
from unmask.recipes.recipe import Recipe
from unmask.support.settings import write
from unmask.training.evaluate import evaluate
from unmask.training.machine import choose_machine, keep_memory
from unmask.workflows.pretraining.pretrain import HELDOUT_TOKENS

VOCABULARY = 8000
SETTINGS: dict[str, Any] = {"stages": [], "optimizer.kind": "adamw"}
DEFAULT = {"optimizer.learning_rate": 5e-5, "encoder.dropout": 0.1}
TUNED: dict[str, Any] = {"bf16": True, "per_device_train_batch_size": 16, "warmup_steps": 0.05, "weight_decay": 0.01}
"""Arguments of the Trainer."""
RATES, SHARE = (2.5e-4, 5e-4, 1e-3, 2e-3), 8
"""Learning rates that are tried, each for one in `SHARE` of the time."""
LENGTH, RATE = 128, 0.15
CHECKPOINTS = 15
TIMED_STEPS = 8
BLOCK = 1000
"""Documents that are concatenated at a time."""


def sequences(corpus: Corpus) -> list[list[int]]:
    """Return sequences of `LENGTH` tokens from shuffled documents."""
    tokenizer, documents = corpus.tokenizer, corpus.train
    order = np.random.default_rng(0).permutation(len(documents))
    found: list[list[int]] = []
    for start in range(0, len(order), BLOCK):
        ids: list[int] = []
        for index in order[start : start + BLOCK]:
            ids += [tokenizer.cls, *chain.from_iterable(part.tolist() for part in documents.sentences(int(index)))]
            ids.append(tokenizer.sep)
        found += [ids[at : at + LENGTH] for at in range(0, len(ids) - LENGTH + 1, LENGTH)]
    return found


def pretrain(
    recipe: Recipe,
    corpus: Corpus,
    out: Path,
    examples: list[dict[str, list[int]]],
    settings: dict[str, Any],
    steps: int | None = None,
) -> None:
    """Train, and leave `out`/model, recipe.toml and metrics.jsonl as our runs do.

    Args:
        recipe: size, dropout, learning rate, budget in minutes, seed.
        corpus: text, with its tokenizer.
        out: folder, begun anew.
        examples: sequences, as the collator of masked language modeling takes them.
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
        values: dict[str, Any] = {
            "max_steps": steps,
            "seed": recipe.seed,
            "learning_rate": recipe.optimizer.learning_rate,
        }
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
        model, line = (
            out / "checkpoints" / f"checkpoint-{step}",
            {"step": step, "tokens": int(lengths[step * batch - 1])},
        )
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
    """Pretrain where that is not done; return the loss at the end."""
    if not (out / "model").exists():
        recipe = unmask.read_recipe("bert-mini", {**SETTINGS, **settings, "budget.minutes": minutes})
        pretrain(recipe, corpus, out, [{"input_ids": ids} for ids in sequences(corpus)], arguments)
    return float(logged(out, "heldout")[-1]["loss"])


def main() -> None:
    """Pretrain both, and add their learning curves."""
    options = parse(__doc__, minutes=30.0, runs=RUNS)
    folder = options.runs / "trainer"
    corpus = english_corpus(folder / "text", VOCABULARY)
    run(corpus, folder / "default", options.minutes, DEFAULT, {})
    losses = {}
    for rate in RATES:
        settings = {"optimizer.learning_rate": rate}
        losses[rate] = run(corpus, folder / f"tried-{rate:g}", options.minutes / SHARE, settings, TUNED)
    best = min(losses, key=losses.__getitem__)
    run(corpus, folder / "tuned", options.minutes, {"optimizer.learning_rate": best}, TUNED)
    searched = {f"{rate:.3g}": loss for rate, loss in losses.items()}
    for case, out, rate, tried in (
        ("trainer", folder / "default", DEFAULT["optimizer.learning_rate"], {}),
        ("trainer-tuned", folder / "tuned", best, searched),
    ):
        last = logged(out)[-1]
        record = {name: last[name] for name in ("step", "tokens", "seconds", "epochs")} | {"learning_rate": rate}
        record |= {"searched": tried, "end": score(load_model(out), corpus), "heldout": logged(out, "heldout")}
        add("minutes", {"case": case}, record)


if __name__ == "__main__":
    main()
