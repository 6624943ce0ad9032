"""How fast is masked-LM pretraining of a BERT, by `unmask.pretrain` and by the Hugging Face Trainer?

Both learn from the same sequences of random words, with AdamW, clipping, a masked-LM head and the same dropout. Ours is
the public entry point on a corpus on disk, from the command's first action to the finished model; the steps are timed
by the run's own metrics.jsonl. Tokens are real ones: padding counts for nobody. `trainer` is the Trainer as installed,
`trainer-tuned` the same after telling glibc to keep freed memory (unmask does so by itself). Engines take turns, each
in a process of its own, and tables show medians over the rounds.

Cases are named SIZE-DATA-PRECISION-DROPOUT: tiny, mini, small, base or large; `var` (lengths of mean 80, at most 128),
`full128` or `full512` (all of that length); bf16 or float32; the dropout rate.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from common import SEEDS, alternate, logged, minilm, parse

import unmask
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.recipes.recipe import Recipe
from unmask.support.choices import Device, Precision
from unmask.training.machine import GPU_WORKERS, Machine, choose_machine, keep_memory

CASES = {
    "mini-var-bf16-0.1": (20, 32),
    "mini-var-float32-0.1": (20, 32),
    "mini-full128-bf16-0.1": (20, 32),
    "mini-full512-bf16-0.1": (12, 8),
    "small-var-bf16-0.1": (12, 32),
    "small-var-float32-0.1": (8, 32),
    "base-full128-bf16-0.1": (4, 16),
}
"""The timed steps and the sequences per step of each."""
ENGINES = ["unmask", "trainer", "trainer-tuned"]
WARM_STEPS = 5
RATE, MASKED = 5e-5, 0.15
AS_TRAINER: dict[str, Any] = {
    "stages": [],
    "optimizer.kind": "adamw",
    "optimizer.betas": [0.9, 0.999],
    "encoder.initial_offsets": [],
    "masking.rate": MASKED,
    "masking.final_rate": MASKED,  # the Trainer's collator has a constant rate
}
"""Settings of a recipe that learns as the Trainer does."""


@dataclass(frozen=True)
class Work:
    """A masked-LM pretraining.

    Attributes:
        model: the recipe.
        data: `var` (lengths of mean 80, at most 128), or `full128`, `full512` … (all sequences of that length).
        precision: bf16 or float32.
        dropout: rate of dropout.
        sequences: per step.
        steps: timed steps, after `WARM_STEPS` others.
        device: cpu or cuda.
        settings: other ones of the recipe.
    """

    model: str
    data: str
    precision: str
    dropout: float
    sequences: int = 32
    steps: int = 30
    device: str = "cpu"
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, case: str, **others: Any) -> Work:
        """Return the work of a case named SIZE-DATA-PRECISION-DROPOUT."""
        size, data, precision, dropout = case.split("-")
        return cls(f"bert-{size}", data, precision, float(dropout), **others)

    @property
    def all_steps(self) -> int:
        """Number of steps, warm-up included."""
        return self.steps + WARM_STEPS

    def recipe(self, **others: Any) -> Recipe:
        """Return the recipe, with other settings besides."""
        settings = {
            **AS_TRAINER,
            "optimizer.learning_rate": RATE,
            "layout.kind": "single",
            "layout.length": int(self.lengths().max()),
            "batch.tokens": False,
            "batch.sequences": self.sequences,
            "budget.steps": self.all_steps,
            "encoder.dropout": self.dropout,
            **({} if "modernbert" in self.model else {"objective.next_sentence": False}),
        }
        return unmask.read_recipe(self.model, {**settings, **self.settings, **others})

    def lengths(self) -> np.ndarray:
        """Return the length of each sequence; with `var` a third of them has 128 tokens, the others are shorter."""
        count = self.sequences * self.all_steps
        if self.data.startswith("full"):
            return np.full(count, int(self.data.removeprefix("full")))
        return np.clip(np.random.default_rng(2).normal(82, 40, count), 16, 128).astype(int)

    def texts(self, tokenizer: Tokenizer) -> list[str]:
        """Return texts of random words, each a token, that make sequences of these lengths with [CLS] and [SEP]."""
        return random_texts(tokenizer, self.lengths() - 2, np.random.default_rng(1))


def random_texts(tokenizer: Tokenizer, lengths: np.ndarray, rng: np.random.Generator) -> list[str]:
    """Return texts of random words of a vocabulary that are one token each, of these numbers of words."""
    tokens = tokenizer.tokens(range(tokenizer.size))
    words = [token for token in tokens if token.isascii() and token.isalpha() and token == token.lower()]
    return [" ".join(words[index] for index in rng.integers(len(words), size=length)) for length in lengths]


def run_unmask(work: Work, **settings: Any) -> dict[str, Any]:
    """Pretrain with `unmask.pretrain`; `settings` are other ones of the recipe.

    Returns:
        Tokens, seconds and tokens_per_second of the timed steps, the share of the machine's peak that they reached, the
        seconds of the whole call, the most memory, and precision, tokens of a micro-batch and of the largest step.
    """
    tokenizer = unmask.load_tokenizer(minilm())
    texts = work.texts(tokenizer)
    machine = choose_machine(work.device, work.precision)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, held in (("train", texts), ("heldout", texts[: work.sequences])):
            (folder / f"{part}.jsonl").write_bytes(b"\n".join(msgspec.json.encode({"text": text}) for text in held))
        corpus = unmask.build_corpus(
            folder / "train.jsonl", tokenizer, folder / "corpus", heldout=folder / "heldout.jsonl"
        )
        start = time.perf_counter()
        unmask.pretrain(
            work.recipe(**settings),
            corpus,
            out=folder / "run",
            device=cast(Device, work.device),
            precision=cast(Precision, work.precision),
            quiet=True,
        )
        return {"wall_seconds": time.perf_counter() - start, **_timed(folder / "run", machine)}


def _timed(run: Path, machine: Machine) -> dict[str, Any]:
    """Return what a finished run says of its timed steps."""
    lines = logged(run)
    before, timed = lines[WARM_STEPS - 1], lines[WARM_STEPS:]
    seconds = timed[-1]["seconds"] - before["seconds"]
    tokens = timed[-1]["tokens"] - before["tokens"]
    flops = sum(
        line["flops_per_second"] * (line["tokens"] - last["tokens"]) / line["tokens_per_second"]
        for last, line in pairwise(lines[WARM_STEPS - 1 :])
    )
    checkpoint = max((run / "checkpoints").glob("step-*"))
    return {
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "share_of_peak": flops / seconds / machine.matmul_peak(),
        "loss": timed[-1]["loss"],
        "precision": json.loads((run / "provenance.json").read_bytes())["inputs"]["precision"],
        "micro_tokens": json.loads((checkpoint / "progress.json").read_bytes())["micro_tokens"],
        "peak_bytes": machine.memory(),
        "largest_step": max(line["tokens"] - last["tokens"] for last, line in pairwise(lines)),
    }


def run_trainer(work: Work) -> dict[str, Any]:
    """Pretrain with the Hugging Face Trainer and its own collator; return what `run_unmask` does of the steps."""
    import peers

    tokenizer = unmask.load_tokenizer(minilm())
    mask, sizes = peers.masking(minilm(), MASKED), list[int]()
    found = mask.tokenizer(work.texts(tokenizer), return_special_tokens_mask=True)
    examples = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]

    def collate(some: list[dict[str, Any]]) -> Any:
        batch = mask(some)
        sizes.append(int(batch["attention_mask"].sum()))
        return batch

    on_gpu = work.device == "cuda"
    clock = peers.Clock((WARM_STEPS, work.all_steps) if on_gpu else ())
    with tempfile.TemporaryDirectory() as folder:
        trainer = peers.trainer(
            peers.masked_lm(work.recipe().encoder, tokenizer),
            examples,
            collate,
            Path(folder),
            clock=clock,
            seed=0,
            per_device_train_batch_size=work.sequences,
            max_steps=work.all_steps,
            learning_rate=RATE,
            bf16=work.precision == "bf16",
            use_cpu=not on_gpu,
            dataloader_num_workers=GPU_WORKERS if on_gpu else 0,
        )
        start = time.perf_counter()
        trainer.train()
        wall = time.perf_counter() - start
    # of random lengths it depends on the order; workers count in processes of their own
    tokens = sum(sizes[WARM_STEPS : work.all_steps]) or work.steps * work.sequences * int(work.lengths().max())
    seconds = clock.ends[-1] - clock.ends[WARM_STEPS - 1]
    return {"wall_seconds": wall, "tokens": tokens, "seconds": seconds, "tokens_per_second": tokens / seconds}


def run(engine: str, work: Work) -> dict[str, Any]:
    """Pretrain with one of `ENGINES`."""
    if engine == "trainer-tuned":
        keep_memory()
    return (run_unmask if engine == "unmask" else run_trainer)(work)


def measure(engine: str, case: str, steps: int, sequences: int) -> dict[str, Any]:
    """Pretrain a case with one of `ENGINES`."""
    size, data, precision, dropout = case.split("-")
    about = {"size": size, "data": data, "asked": precision, "dropout": float(dropout), "sequences": sequences}
    return about | run(engine, Work.parse(case, steps=steps, sequences=sequences))


def main() -> None:
    """Measure the cases."""
    options = parse(__doc__, CASES, rounds=SEEDS)
    for case in options.names:
        steps, sequences = CASES[case]
        work = partial(measure, steps=steps, sequences=sequences)
        for number in options.rounds:
            alternate("pretrain_speed", work, ENGINES, {"case": case}, round=number)


if __name__ == "__main__":
    main()
