"""What limits a training on many GPUs? Measured and calculated: reading, and RoBERTa's pretraining on paper.

- `feed`: how many tokens a second one core cuts from documents, which each worker does for the whole step, and how many
  it masks and collates, which it does for its share.
- `plan`: hours, bottleneck, failures and checkpoints of RoBERTa's pretraining (Liu et al. 2019: 500,000 steps of 8,192
  sequences of 512) on H100s, from the measured speed of bert-large on one (gpu.py), from `feed`, and from the published
  figures below.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common
from common import HERE, add, parse, read

from unmask.data.batches.batch import Sample
from unmask.data.batches.sources import Source
from unmask.data.batches.steps import Steps
from unmask.data.corpus.build import write_corpus
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.families.checkpoints.check import on_meta
from unmask.objectives.flops import forward_flops
from unmask.objectives.learner import Learner
from unmask.recipes.recipe import read_recipe
from unmask.training.machine import GPU_WORKERS
from unmask.workflows.pretraining.checks import build_curriculum
from unmask.workflows.pretraining.start import build_learner

FED = ("bert-mini", "modernbert-mini", "roberta-large")
"""Recipes that cut text into pairs of up to 128 tokens, sentences of up to 128, and sentences of 512."""
GPUS, PER_HOST = (8, 64, 1024), 8
NVLINK, NETWORK = 450e9, 50e9
"""Bytes a second that an H100 sends to GPUs of its host (NVLink 4), and to others (a port of 400 Gb/s for each GPU)."""
HOURS_PER_FAILURE = 16_384 * 54 * 24 / 419
"""Hours of a GPU between interruptions (Dubey et al. 2024 (Llama 3), section 3.3.4: 419 in 54 days on 16,384 H100s)."""
STATE = 12
"""Bytes of a checkpoint for each parameter: weight and two moments in float32."""
Prepare = Callable[[Sample], Sample]


@contextmanager
def opened(name: str, texts: Sequence[Path]) -> Iterator[tuple[Source, Learner, Prepare]]:
    """Make a corpus, and yield the source of a recipe, its learner without values, and what prepares a sample."""
    recipe = read_recipe(name)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = train_wordpiece([path.read_text(encoding="utf8") for path in texts], size=8000)
        corpus = write_corpus(texts, tokenizer, Path(folder) / "corpus")
        with on_meta():
            learner, _ = build_learner(recipe, tokenizer.size, None)
        curriculum = build_curriculum(recipe, tokenizer, learner)
        yield curriculum.source(corpus.train), learner, curriculum.prepare()


def feed(options: Any, texts: Sequence[Path]) -> None:
    """Measure how fast one core cuts, and how fast it masks and collates."""
    for name in FED:
        with opened(name, texts) as (source, learner, prepare):
            for stage, about in enumerate(source.stages):
                steps = Steps(lambda *_: ([], ()), list, prepare, learner.plan, options.tokens)
                cursor = source.enter(source.start, stage)
                cutting = making = 0.0
                tokens = 0
                source.take(cursor, tokens=1)  # the first block is read twice
                while cutting + making < options.seconds:
                    start = time.process_time()
                    samples, cursor = source.take(cursor, tokens=options.tokens)
                    cut = time.process_time()
                    step = steps.make(samples, cursor)
                    cutting += cut - start
                    making += time.process_time() - cut
                    tokens += step.tokens
                flops = sum(forward_flops(learner, batch) for batch in step.micro_batches) / step.tokens
                record = {"cut_per_second": tokens / cutting, "made_per_second": tokens / making}
                key = {"check": "feed", "recipe": name, "stage": stage, "length": about.length}
                add("many_gpus", key, record | {"forward_flops_per_token": flops})


def plan(options: Any, texts: Sequence[Path]) -> None:
    """Calculate RoBERTa's pretraining on some numbers of GPUs, and what would limit it."""
    cases = [run for run in read(HERE / "results" / "gpu.json")["runs"] if run.get("engine") == "unmask"]
    measured = next(run for run in cases if run.get("case", "").startswith("bert-large"))
    core = next(run for run in read(common.RESULTS / "many_gpus.json")["runs"] if run.get("recipe") == "roberta-large")
    recipe, per_second = read_recipe("roberta-large"), float(measured["tokens_per_second"])
    with on_meta():
        learner, _ = build_learner(recipe, recipe.tokenizer.vocabulary, None)
    parameters = sum(value.numel() for value in learner.parameters())
    sequences, steps, length = recipe.batch.sequences or 0, recipe.budget.steps or 0, recipe.layout.length
    tokens = sequences * length
    for gpus in options.gpus:
        computing = tokens / gpus / per_second
        sums = 2 * (gpus - 1) / gpus * 4 * parameters / (NVLINK if gpus <= PER_HOST else NETWORK)
        last = min(computing, measured["micro_tokens"] / per_second)  # its backward pass hides two thirds of its time
        waiting = max(0.0, sums - 2 / 3 * last)
        reading = tokens / core["cut_per_second"] + tokens / gpus / GPU_WORKERS / core["made_per_second"]
        parts = {"computing": computing + waiting, "reading": reading}
        bottleneck = max(parts, key=parts.__getitem__)
        if bottleneck == "computing" and waiting > computing:
            bottleneck = "sums of gradients"
        hours = steps * max(parts.values()) / 3600
        record = {
            "parameters": parameters,
            "compute_seconds": computing,
            "sum_seconds": sums,
            "wait_seconds": waiting,
            "read_seconds": reading,
            "bottleneck": bottleneck,
            "hours": hours,
            "hours_if_fed": steps * parts["computing"] / 3600,
            "gpu_hours": hours * gpus,
            "failures": hours * gpus / HOURS_PER_FAILURE,
            "checkpoint_bytes": STATE * parameters,
        }
        add("many_gpus", {"check": "plan", "gpus": gpus}, record)


CHECKS: dict[str, Callable[[Any, Sequence[Path]], None]] = {"feed": feed, "plan": plan}


def main() -> None:
    """Measure and calculate."""
    options = parse(__doc__, CHECKS, tokens=65_536, seconds=20.0, gpus=list(GPUS))
    texts = sorted((HERE.parent / "docs").glob("*.md"))
    for check in options.names:
        CHECKS[check](options, texts)


if __name__ == "__main__":
    main()
