"""Long texts: pretraining and inference of a ModernBERT whose local layers attend to a window, beside transformers.

The model is modernbert-mini for texts of up to 8,192 tokens: every third layer attends to all tokens, the others to the
64 on each side. Sequences of random words are all as long as the case says. A step of pretraining has 8,192 tokens, so
that steps differ in the length of sequences alone; it is that of pretrain_speed.py, with the Trainer beside it. In
inference a classifier with random weights reads 32,768 tokens, one text at a time on either side. Memory is the most
that a process had. Engines take turns, each in a process of its own.
"""

from __future__ import annotations

import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import SEEDS, add, apart, minilm, parse
from pretrain_speed import Work, random_texts, run

import unmask
from unmask.model.model import Model, save_model
from unmask.recipes.recipe import Recipe
from unmask.tasks.classification import Classification
from unmask.training.machine import processor

LENGTHS = [1024, 4096, 8192]
STEP, READ = 8192, 32_768
"""Tokens of a step, and those that are read in inference."""
ENGINES = {"training": ["unmask", "trainer-tuned"], "inference": ["unmask", "transformers"]}


@dataclass(frozen=True)
class LongWork(Work):
    """A pretraining of sequences that are longer than those of the recipe."""

    def recipe(self, **others: Any) -> Recipe:
        """See `Work`."""
        return super().recipe(**{"encoder.positions": max(LENGTHS), "initial_embeddings": "random", **others})


def work(length: int, steps: int) -> LongWork:
    """Return the pretraining of a case."""
    return LongWork("modernbert-mini", f"full{length}", "float32", 0.0, sequences=STEP // length, steps=steps)


def train(engine: str, length: int, steps: int) -> dict[str, Any]:
    """Return tokens per second and the most memory of a pretraining."""
    found = run(engine, work(length, steps))
    return {"tokens_per_second": found["tokens_per_second"], **_memory()}


def infer(engine: str, length: int, tokens: int) -> dict[str, Any]:
    """Return tokens per second and the most memory of a classifier that reads one text at a time."""
    count = max(1, tokens // length)
    words = random_texts(unmask.load_tokenizer(minilm()), np.full(count + 1, length - 2), np.random.default_rng(3))
    with tempfile.TemporaryDirectory() as folder:
        model = build(Path(folder) / "model", length)
        compute = _unmask(model) if engine == "unmask" else _transformers(model, length)
        compute(words[-1])  # compiles kernels, allocates
        start = time.perf_counter()
        for text in words[:-1]:
            compute(text)
        return {"tokens_per_second": count * length / (time.perf_counter() - start), **_memory()}


def build(out: Path, length: int) -> Path:
    """Write a classifier with random weights; return its directory."""
    tokenizer, task, labels = unmask.load_tokenizer(minilm()), Classification(length=length, pairs=False), ("no", "yes")
    torch.manual_seed(0)
    body = work(length, 1).recipe().encoder.build(tokenizer.size)
    heads = {task.part: task.build(body.head, labels).published()}
    save_model(out, Model(body, tokenizer, heads, labels, task), "A benchmark.")
    return out


def _unmask(model: Path) -> Any:
    classifier = unmask.load(model, device="cpu", precision="float32")
    return lambda text: classifier.predict([text])


def _transformers(model: Path, length: int) -> Any:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForSequenceClassification.from_pretrained(model, dtype=torch.float32).eval()

    @torch.inference_mode()
    def compute(text: str) -> Any:
        given = tokenizer([text], truncation=True, max_length=length, return_tensors="pt")
        return network(**given).logits.numpy()

    return compute


def _memory() -> dict[str, int]:
    return {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main() -> None:
    """Measure every length by every engine."""
    options = parse(__doc__, ENGINES, rounds=SEEDS, lengths=LENGTHS, steps=4, tokens=READ)
    machine = {"instructions": torch.backends.cpu.get_cpu_capability(), "processor": processor()}
    for kind in options.names:
        measure, amount = (train, options.steps) if kind == "training" else (infer, options.tokens)
        for number in options.rounds:
            for length in options.lengths:
                for engine in ENGINES[kind]:
                    key = {"case": kind, "engine": engine, "length": length, "round": number, **machine}
                    add("long_texts", key, apart(measure, engine, length, amount))


if __name__ == "__main__":
    main()
