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

import argparse
import json
import shutil
import time
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import HERE, add, logged
from files import english_corpus

import unmask
from unmask.data.batches.curriculum import Feed
from unmask.data.batches.masking import TokenMaskingSettings
from unmask.data.batches.one_segment import DocumentSentencesSettings
from unmask.data.corpus.corpus import Corpus
from unmask.families.bert import BertSettings
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
TUNED = {"precision": "bf16", "per_device_train_batch_size": 16, "warmup_steps": 0.05, "weight_decay": 0.01}
"""Arguments of the Trainer."""
RATES, SHARE = (2.5e-4, 5e-4, 1e-3, 2e-3), 8
"""Learning rates that are tried, each for one in `SHARE` of the time."""
LENGTH = 128
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


def configuration(recipe: Recipe, corpus: Corpus) -> Any:
    """Return the `BertConfig` of the recipe's body."""
    import transformers

    shape = recipe.encoder
    assert isinstance(shape, BertSettings)
    return transformers.BertConfig(
        num_hidden_layers=shape.layers,
        hidden_size=shape.width,
        num_attention_heads=shape.heads,
        intermediate_size=shape.feed_forward,
        max_position_embeddings=shape.positions,
        vocab_size=corpus.tokenizer.size,
        hidden_dropout_prob=shape.dropout,
        attention_probs_dropout_prob=shape.dropout,
        pad_token_id=corpus.tokenizer.pad,
    )


def pretrain(recipe: Recipe, corpus: Corpus, out: Path, settings: dict[str, Any]) -> None:
    """Train, and leave `out`/model, recipe.toml and metrics.jsonl as our runs do.

    Args:
        recipe: size, dropout, learning rate, budget in steps or minutes, seed.
        corpus: text, with its tokenizer.
        out: folder, begun anew.
        settings: precision (bf16 or float32), and of the Trainer's arguments those that are not by default.
    """
    import transformers

    shutil.rmtree(out, ignore_errors=True)
    keep_memory()
    arguments = dict(settings)
    precision = arguments.pop("precision", "float32")
    examples = [{"input_ids": ids} for ids in sequences(corpus)]
    corpus.tokenizer.save(out / "tokenizer")
    collator = transformers.DataCollatorForLanguageModeling(
        transformers.AutoTokenizer.from_pretrained(out / "tokenizer"), mlm_probability=0.15
    )
    clock = _clock(transformers.TrainerCallback)

    def trainer(steps: int, folder: Path) -> Any:
        torch.manual_seed(recipe.seed)
        values = {
            "output_dir": str(folder),
            "max_steps": steps,
            "bf16": precision == "bf16",
            "seed": recipe.seed,
            "learning_rate": recipe.optimizer.learning_rate,
            "use_cpu": True,
            "save_steps": max(1, steps // CHECKPOINTS),
            "save_only_model": True,
            "report_to": [],
            "disable_tqdm": True,
            "logging_steps": 10_000,
            **arguments,
        }
        return transformers.Trainer(
            model=transformers.BertForMaskedLM(configuration(recipe, corpus)),
            args=transformers.TrainingArguments(**values),
            train_dataset=examples,
            data_collator=collator,
            callbacks=[clock],
        )

    steps = recipe.budget.steps or 0
    if recipe.budget.minutes is not None:
        trainer(TIMED_STEPS, out / "timed").train()
        steps = int(recipe.budget.minutes * 60 / np.median(np.diff(clock.ends)[2:]))
        shutil.rmtree(out / "timed")
    clock.begin()
    trainer(steps, out / "checkpoints").train()
    batch = arguments.get("per_device_train_batch_size", 8)
    lines = _score_checkpoints(out / "checkpoints", corpus, clock.saved, batch / len(examples), batch * LENGTH)
    (out / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf8")
    (out / "recipe.toml").write_text(write(recipe), encoding="utf8")
    (out / "checkpoints" / f"checkpoint-{max(clock.saved)}").rename(out / "model")
    shutil.rmtree(out / "checkpoints")


def _score_checkpoints(
    folder: Path, corpus: Corpus, saved: dict[int, float], epochs: float, tokens: int
) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl: for each checkpoint how far it has come, and its scores.

    Args:
        folder: the checkpoints.
        corpus: text, with its tokenizer.
        saved: seconds until each checkpoint, by step.
        epochs, tokens: number per step.
    """
    lines: list[dict[str, Any]] = []
    for step, seconds in saved.items():
        model = folder / f"checkpoint-{step}"
        corpus.tokenizer.save(model)
        line = {"step": step, "tokens": step * tokens}
        lines.append({"kind": "train", **line, "seconds": seconds, "epochs": round(step * epochs, 4)})
        lines.append({"kind": "heldout", **line, **score(load_model(model), corpus)})
    return lines


def score(model: Model, corpus: Corpus) -> dict[str, float]:
    """Return loss and accuracy on held-out sequences of `LENGTH` with 15 % single tokens masked."""
    head = MaskedLM(BuildContext(model.encoder))
    if model.take("masked_lm", head):
        raise ValueError("the model has no masked-LM head")
    learner = Learner(model.encoder, {"masked_lm": head})
    layout = DocumentSentencesSettings(length=LENGTH)
    feed = Feed(layout, TokenMaskingSettings(), 0, corpus.tokenizer, learner.prepare)
    return evaluate(learner, feed.heldout(corpus.heldout, HELDOUT_TOKENS), choose_machine("cpu", "float32"))


def _clock(base: Any) -> Any:
    """Return a callback that counts the seconds of training without those of saving."""

    class Clock(base):  # type: ignore[misc]
        def __init__(self) -> None:
            self.begin()

        def begin(self) -> None:
            self.ends: list[float] = []
            self.saved: dict[int, float] = {}
            self.saving = 0.0

        def on_train_begin(self, *args: Any, **settings: Any) -> None:
            self.start = time.perf_counter()

        def on_step_end(self, *args: Any, **settings: Any) -> None:
            self.ends.append(time.perf_counter())

        def on_save(self, arguments: Any, state: Any, *args: Any, **settings: Any) -> None:
            self.saved[state.global_step] = round(self.ends[-1] - self.start - self.saving, 1)
            self.saving += time.perf_counter() - self.ends[-1]

    return Clock()


def run(corpus: Corpus, out: Path, minutes: float, settings: dict[str, Any], arguments: dict[str, Any]) -> float:
    """Pretrain where that is not done; return the loss at the end."""
    if not (out / "model").exists():
        recipe = unmask.read_recipe("bert-mini", {**SETTINGS, **settings, "budget.minutes": minutes})
        pretrain(recipe, corpus, out, arguments)
    return float(logged(out, "heldout")[-1]["loss"])


def main() -> None:
    """Pretrain both, and add their learning curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--runs", type=Path, default=HERE.parent / "runs", help="where runs are kept (default: runs)")
    options = parser.parse_args()
    folder = options.runs / "trainer"
    corpus = english_corpus(folder / "text", VOCABULARY)
    run(corpus, folder / "default", options.minutes, DEFAULT, {})
    losses = {}
    for rate in RATES:
        settings = {"optimizer.learning_rate": rate}
        losses[rate] = run(corpus, folder / f"tried-{rate:g}", options.minutes / SHARE, settings, TUNED)
    best = min(losses, key=losses.__getitem__)
    run(corpus, folder / "tuned", options.minutes, {"optimizer.learning_rate": best}, TUNED)
    for case, out, rate in (
        ("trainer", "default", DEFAULT["optimizer.learning_rate"]),
        ("trainer-tuned", "tuned", best),
    ):
        last = logged(folder / out)[-1]
        record = {name: last[name] for name in ("step", "tokens", "seconds", "epochs")} | {"learning_rate": rate}
        searched = {f"{rate:.3g}": loss for rate, loss in losses.items()} if out == "tuned" else {}
        record |= {"searched": searched, "end": score(load_model(folder / out), corpus)}
        add("minutes", {"case": case, **record, "heldout": logged(folder / out, "heldout")}, instead=("case",))


if __name__ == "__main__":
    main()
