"""Long texts: pretraining and inference of a ModernBERT whose local layers attend to a window, beside transformers.

The model is modernbert-mini for texts of up to 8,192 tokens: every third layer attends to all tokens, the others to the
64 on each side. Sequences of random words are all as long as the case says. A step of pretraining has 8,192 tokens, so
that steps differ in the length of sequences alone; it is that of pretrain_speed.py, with the Trainer beside it. In
inference a classifier with random weights reads 32,768 tokens, one text at a time on either side. Memory is the most
that a process had. Engines take turns, each in a process of its own.
"""

from __future__ import annotations

import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from common import SEEDS, alternate, machine, minilm, parse, peak_bytes
from inference import Run, engine, write_classifier
from pretrain_speed import Work, random_texts, run

import unmask

LENGTHS = (1024, 4096, 8192)
STEPS, STEP, READ = 4, 8192, 32_768
"""Timed steps, tokens of one, and those that are read in inference."""
SETTINGS = {"encoder.positions": max(LENGTHS), "initial_embeddings": "random"}


def work(length: int) -> Work:
    """Return the pretraining of a case."""
    return Work("modernbert-mini", f"full{length}", "float32", 0.0, STEP // length, STEPS, settings=SETTINGS)


def train(name: str, length: int) -> dict[str, Any]:
    """Return tokens per second and the most memory of a pretraining."""
    return {"tokens_per_second": run(name, work(length))["tokens_per_second"], "peak_bytes": peak_bytes()}


def infer(name: str, length: int) -> dict[str, Any]:
    """Return tokens per second and the most memory of a classifier that reads one text at a time."""
    count = max(1, READ // length)
    words = random_texts(unmask.load_tokenizer(minilm()), np.full(count + 1, length - 2), np.random.default_rng(3))
    with tempfile.TemporaryDirectory() as folder:
        compute = classifier(name, length, Path(folder))
        compute(words[-1:])  # compiles kernels, allocates
        start = time.perf_counter()
        for text in words[:-1]:
            compute([text])
        speed = count * length / (time.perf_counter() - start)
    return {"tokens_per_second": speed, "peak_bytes": peak_bytes()}


def classifier(name: str, length: int, folder: Path) -> Run:
    """Return the function by which an engine computes texts."""
    model = write_classifier(work(length).recipe().encoder, length, folder / "model")
    return engine(f"{name} float32", model, folder, length=length)


CASES = {"training": (train, ("unmask", "trainer-tuned")), "inference": (infer, ("unmask", "transformers"))}


def main() -> None:
    """Measure every length by every engine."""
    options = parse(__doc__, CASES, rounds=SEEDS)
    for case, number, length in product(options.names, options.rounds, LENGTHS):
        measure, engines = CASES[case]
        alternate("long_texts", measure, engines, {"length": length}, case=case, round=number, **machine())


if __name__ == "__main__":
    main()
