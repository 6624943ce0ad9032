"""How fast is masked-LM pretraining beside the Hugging Face Trainer, at the same work?

Both learn BERT with a masked-LM head from the same random sequences, 32 a step, AdamW, clipping, the same dropout.
`trainer` is the Trainer as installed, `trainer-tuned` the same after telling glibc to keep freed memory (what unmask
does by itself; about twice as fast where page faults are dear). Each engine runs in a process of its own; engines take
turns, and each figure is the median over the turns. Tokens are real ones: padding counts for nobody.

Cases are named SIZE-DATA-PRECISION-DROPOUT: mini or small; `var` (lengths of mean 80, at most 128), `full128` or
`full512` (all of that length); bf16 or float32; the dropout rate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import RESULTS, minilm, read, write

from unmask.batches.batch import Sample
from unmask.batches.chance import generator
from unmask.batches.masking import MaskingSettings, TokenMasking
from unmask.batches.sources import ExampleSource
from unmask.encoders.transformer import TransformerSettings
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLMSettings
from unmask.runs.directory import RunDirectory
from unmask.runs.display import Display
from unmask.training.loop import Trainer
from unmask.training.machine import choose_machine, keep_memory
from unmask.training.settings import (
    BatchSettings,
    BudgetSettings,
    OptimizerSettings,
    ScheduleSettings,
    TrainingSettings,
)

CASES = [
    "mini-var-bf16-0.1",
    "mini-var-bf16-0.0",
    "mini-var-float32-0.1",
    "mini-full128-bf16-0.1",
    "mini-full512-bf16-0.1",
    "small-var-bf16-0.1",
    "small-var-float32-0.1",
]
SIZES = {"tiny": (2, 128, 2), "mini": (4, 256, 4), "small": (4, 512, 8)}
ENGINES = ("unmask", "trainer", "trainer-tuned")
VOCABULARY, FIRST_WORD, CLS, SEP, MASK = 30522, 1000, 101, 102, 103  # as in bert-base-uncased
SEQUENCES = 32
WARM_STEPS = 3


def lengths(data: str, many: int) -> np.ndarray:
    """Return the sequences' lengths: of `var` a third has the full 128 tokens, the others are spread below."""
    if data.startswith("full"):
        return np.full(many, int(data.removeprefix("full")))
    return np.clip(np.random.default_rng(2).normal(82, 40, many), 16, 128).astype(int)


def sequences(data: str, many: int) -> Iterator[np.ndarray]:
    """Give sequences of random words, [SEP] in the middle and at the end."""
    rng = np.random.default_rng(1)
    for length in lengths(data, many):
        ids = rng.integers(FIRST_WORD, VOCABULARY, length)
        ids[0], ids[length // 2], ids[-1] = CLS, SEP, SEP
        yield ids


def run_unmask(size: str, data: str, precision: str, dropout: float, steps: int) -> tuple[int, float]:
    """Return tokens and seconds of the steps after the warm ones."""
    layers, width, heads = SIZES[size]
    encoder = TransformerSettings(layers=layers, width=width, heads=heads, feed_forward=4 * width, dropout=dropout)
    torch.manual_seed(0)
    learner = Learner(encoder.build(VOCABULARY), {"masked_lm": MaskedLMSettings().build(encoder, VOCABULARY)})
    masking = TokenMasking(MaskingSettings(), vocabulary=VOCABULARY, mask=MASK, special=frozenset(range(FIRST_WORD)))
    samples = [
        Sample(key=(), ids=ids, segments=(np.arange(len(ids)) > len(ids) // 2).astype(np.int64))
        for ids in sequences(data, SEQUENCES * (steps + WARM_STEPS))
    ]
    settings = TrainingSettings(
        batch=BatchSettings(sequences=SEQUENCES),
        optimizer=OptimizerSettings(learning_rate=5e-5),
        schedule=ScheduleSettings(),
        budget=BudgetSettings(steps=steps + WARM_STEPS),
    )
    with tempfile.TemporaryDirectory() as folder, RunDirectory.create(Path(folder) / "run", "", {}, {}) as run:
        trainer = Trainer(
            learner,
            ExampleSource(samples, seed=0),
            prepare=lambda sample: learner.prepare(masking(sample, generator(0, "masking", *sample.key))),
            heldout=[],
            settings=settings,
            run=run,
            machine=choose_machine("cpu", precision),
            display=Display(quiet=True),
        )
        trainer.progress.total = steps + WARM_STEPS
        for _ in range(WARM_STEPS):
            trainer.step()
        tokens, begun = trainer.progress.tokens, time.perf_counter()
        for _ in range(steps):
            trainer.step()
        return trainer.progress.tokens - tokens, time.perf_counter() - begun


def run_trainer(size: str, data: str, precision: str, dropout: float, steps: int) -> tuple[int, float]:
    """The same with the Hugging Face Trainer and its own collator."""
    import transformers
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling

    layers, width, heads = SIZES[size]
    config = BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        vocab_size=VOCABULARY,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    tokenizer = AutoTokenizer.from_pretrained(minilm())  # the same 30,522 pieces and special tokens
    examples = []
    for ids in sequences(data, SEQUENCES * (steps + WARM_STEPS)):
        middle, end = len(ids) // 2, len(ids) - 1
        special = [int(place in (0, middle, end)) for place in range(len(ids))]
        segments = [int(place > middle) for place in range(len(ids))]
        masks = {"special_tokens_mask": special, "attention_mask": [1] * len(ids)}
        examples.append({"input_ids": ids.tolist(), "token_type_ids": segments, **masks})
    times: list[float] = []
    sizes: list[int] = []

    class Collator(DataCollatorForLanguageModeling):  # type: ignore[misc,unused-ignore]
        def __call__(self, *args: Any, **settings: Any) -> Any:
            batch = super().__call__(*args, **settings)
            sizes.append(int(batch["attention_mask"].sum()))
            return batch

    class Clock(transformers.TrainerCallback):  # type: ignore[misc,unused-ignore]
        def on_step_end(self, *args: Any, **settings: Any) -> None:
            times.append(time.perf_counter())

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=SEQUENCES,
            max_steps=steps + WARM_STEPS,
            learning_rate=5e-5,
            bf16=precision == "bf16",
            use_cpu=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_steps=10_000,
        )
        trainer = transformers.Trainer(
            model=BertForMaskedLM(config),
            args=arguments,
            train_dataset=examples,
            data_collator=Collator(tokenizer, mlm_probability=0.15),
            callbacks=[Clock()],
        )
        trainer.train()
    tokens = sum(sizes[WARM_STEPS : WARM_STEPS + steps])
    return tokens, times[-1] - times[WARM_STEPS - 1]


def measure(engine: str, case: str, steps: int) -> dict[str, float]:
    """Run an engine in this process."""
    size, data, precision, dropout = case.split("-")
    if engine == "trainer-tuned":
        keep_memory()
    run = run_unmask if engine == "unmask" else run_trainer
    tokens, seconds = run(size, data, precision, float(dropout), steps)
    return {"tokens": tokens, "seconds": seconds, "tokens_per_second": tokens / seconds}


def compare(case: str, steps: int, rounds: int) -> dict[str, Any]:
    """Let the engines take turns."""
    found: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for _ in range(rounds):
        for engine in ENGINES:
            command = [sys.executable, __file__, "--engine", engine, "--cases", case, "--steps", str(steps)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[engine].append(json.loads(output.splitlines()[-1])["tokens_per_second"])
            print(case, engine, round(found[engine][-1]), flush=True)
    medians = {engine: statistics.median(values) for engine, values in found.items()}
    ratios = {engine: medians["unmask"] / value for engine, value in medians.items() if engine != "unmask"}
    return {"tokens_per_second": found, "median": medians, "ratio": ratios}


def main() -> None:
    """Measure the cases that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=CASES, metavar="CASE")
    parser.add_argument("--steps", type=int, default=30, help="timed steps a turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each engine")
    parser.add_argument("--engine", choices=ENGINES, help="run this one alone, in this process")
    options = parser.parse_args()
    if options.engine:
        print(json.dumps(measure(options.engine, options.cases[0], options.steps)))
        return
    cases = read(RESULTS / "pretrain_speed.json").get("cases", {})
    for case in options.cases:
        cases[case] = compare(case, options.steps, options.rounds)
        write("pretrain_speed", {"cases": cases})


if __name__ == "__main__":
    main()
