"""What limits a training on many GPUs? Measured and calculated: reading, and RoBERTa's pretraining on paper.

- `feed`: how many tokens a second one core cuts, by the lengths of sentences, and shares among processes, which each
  worker does for the whole step; and how many it reads, masks and collates, which it does for its share, with the
  garbage collector as workers have it. Each section of the guide is a document, so that documents are not much longer
  than pages of the web.
- `plan`: hours, bottleneck, failures and checkpoints of RoBERTa's pretraining (Liu et al. 2019: 500,000 steps of 8,192
  sequences of 512) on H100s, from the measured speed of bert-large on one (gpu.py), from `feed`, and from the published
  figures below.
"""

from __future__ import annotations

import gc
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import common
import msgspec
from common import HERE, add, parse, read

from unmask.data.batches.samples import Samples
from unmask.data.batches.steps import Steps
from unmask.data.corpus.build import write_corpus
from unmask.data.tokenizers.wordpiece import train_wordpiece
from unmask.families.checkpoints.check import on_meta
from unmask.objectives.flops import cost_of_lengths
from unmask.recipes.recipe import read_recipe
from unmask.training.machine import GPU_WORKERS
from unmask.training.processes import Processes
from unmask.training.settings import BatchSettings
from unmask.training.step_feed import StepFeed
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
STEP, SHARES, SECONDS = 8192 * 512, 64, 20.0
"""Tokens of a step, how many processes share it, and how long is measured."""


def feed() -> None:
    """Measure how fast one core cuts and shares, and how fast it reads, masks and collates."""
    guides = [path.read_text(encoding="utf8") for path in sorted((HERE.parent / "docs").glob("*.md"))]
    sections = [section for guide in guides for section in re.split(r"\n(?=##? )", guide)]
    for name in FED:
        recipe = read_recipe(name)
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = train_wordpiece(guides, size=8000)
            texts = Path(folder) / "texts.jsonl"
            texts.write_bytes(b"".join(msgspec.json.encode({"text": section}) + b"\n" for section in sections))
            corpus = write_corpus(texts, tokenizer, Path(folder) / "corpus")
            with on_meta():
                learner, _ = build_learner(recipe, tokenizer.size, None)
            curriculum = build_curriculum(recipe, tokenizer, learner)
            source = curriculum.source(corpus.train)
            gc.freeze()
            for stage, about in enumerate(source.stages):
                batch, cost = BatchSettings(tokens=STEP), cost_of_lengths(learner.encoder)
                prepare, plan = curriculum.prepare(), learner.plan
                feed = StepFeed(source, batch, prepare, plan, Processes(0, SHARES), 0, cost)
                cursor = source.enter(source.start, stage)
                cutting = making = 0.0
                tokens = own = 0
                while cutting + making < SECONDS:
                    start = time.process_time()
                    samples, cursor = feed.take(0, cursor)
                    share = feed.share(samples)
                    cut = time.process_time()
                    Steps(feed.take, always(share), prepare, plan, STEP).make(samples, cursor)
                    cutting += cut - start
                    making += time.process_time() - cut
                    tokens += samples.tokens
                    own += int(samples.lengths[share].sum())
                key = {"check": "feed", "recipe": name, "stage": stage, "length": about.length}
                add("many_gpus", key, {"cut_per_second": tokens / cutting, "made_per_second": own / making})


def always(share: list[int]) -> Callable[[Samples], list[int]]:
    """Return what returns a share that is known, so that sharing is not measured twice."""
    return lambda samples: share


def plan() -> None:
    """Calculate RoBERTa's pretraining on some numbers of GPUs, and what would limit it."""
    cases = [run for run in read(HERE / "results" / "gpu.json")["runs"] if run.get("engine") == "unmask"]
    measured = next(run for run in cases if run.get("case", "").startswith("bert-large"))
    core = next(run for run in read(common.RESULTS / "many_gpus.json")["runs"] if run.get("recipe") == "roberta-large")
    recipe, per_second = read_recipe("roberta-large"), float(measured["tokens_per_second"])
    with on_meta():
        learner, _ = build_learner(recipe, recipe.tokenizer.vocabulary, None)
    parameters = sum(value.numel() for value in learner.parameters())
    steps, tokens = recipe.budget.steps or 0, (recipe.batch.sequences or 0) * recipe.layout.length
    for gpus in GPUS:
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
        seconds = {"compute_seconds": computing, "sum_seconds": sums, "wait_seconds": waiting, "read_seconds": reading}
        totals = {"hours": hours, "hours_if_fed": steps * parts["computing"] / 3600, "gpu_hours": hours * gpus}
        rest = {"failures": hours * gpus / HOURS_PER_FAILURE, "checkpoint_bytes": STATE * parameters}
        record = {"parameters": parameters, **seconds, "bottleneck": bottleneck, **totals, **rest}
        add("many_gpus", {"check": "plan", "gpus": gpus}, record)


CHECKS = {"feed": feed, "plan": plan}


def main() -> None:
    """Measure and calculate."""
    for check in parse(__doc__, CHECKS).names:
        CHECKS[check]()


if __name__ == "__main__":
    main()
