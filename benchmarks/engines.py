"""unmask and the Hugging Face Trainer at the same work: masked-LM pretraining of BERT on the same random sequences.

AdamW, clipping, a masked-LM head, the same dropout on both sides. Tokens are real ones: padding counts for nobody.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import minilm

from unmask.batches.batch import Sample
from unmask.batches.rng import derive_rng
from unmask.batches.sources import ExampleSource
from unmask.batches.token_masking import TokenMasking, TokenMaskingSettings
from unmask.families.bert import BertSettings
from unmask.objectives.learner import Learner
from unmask.objectives.masked_lm import MaskedLMSettings
from unmask.objectives.objective import BuildContext
from unmask.runs.directory import RunDirectory
from unmask.runs.display import Display
from unmask.training.loop import Trainer
from unmask.training.machine import choose_machine
from unmask.training.settings import (
    BatchSettings,
    BudgetSettings,
    OptimizerSettings,
    ScheduleSettings,
    TrainingSettings,
)

SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
"""Layers, width and heads."""
VOCABULARY, FIRST_WORD, CLS, SEP, MASK = 30522, 1000, 101, 102, 103  # as in bert-base-uncased
WARM_STEPS = 3


@dataclass(frozen=True)
class Work:
    """What is to be learnt.

    Attributes:
        size: one of `SIZES`.
        data: `var` (lengths of mean 80, at most 128), or `full128`, `full512` (all of that length).
        precision: bf16 or float32.
        dropout: its rate.
        sequences: in a step.
        steps: that are timed, after `WARM_STEPS` others.
        device: cpu or cuda.
    """

    size: str
    data: str
    precision: str
    dropout: float
    sequences: int = 32
    steps: int = 30
    device: str = "cpu"

    def lengths(self) -> np.ndarray:
        """Return the sequences' lengths: of `var` a third has the full 128 tokens, the others are spread below."""
        many = self.sequences * (self.steps + WARM_STEPS)
        if self.data.startswith("full"):
            return np.full(many, int(self.data.removeprefix("full")))
        return np.clip(np.random.default_rng(2).normal(82, 40, many), 16, 128).astype(int)

    def texts(self) -> Iterator[np.ndarray]:
        """Give sequences of random words, [SEP] in the middle and at the end."""
        rng = np.random.default_rng(1)
        for length in self.lengths():
            ids = rng.integers(FIRST_WORD, VOCABULARY, length)
            ids[0], ids[length // 2], ids[-1] = CLS, SEP, SEP
            yield ids


@dataclass(frozen=True)
class Measured:
    """What an engine did in the timed steps.

    Attributes:
        tokens, seconds: in all.
        flops: of products of matrices (only unmask counts them).
    """

    tokens: int
    seconds: float
    flops: float = 0.0


@contextmanager
def unmask_trainer(work: Work) -> Iterator[Trainer]:
    """Give unmask's own loop after the warm steps."""
    layers, width, heads = SIZES[work.size]
    encoder = BertSettings(layers=layers, width=width, heads=heads, feed_forward=4 * width, dropout=work.dropout)
    torch.manual_seed(0)
    body = encoder.build(VOCABULARY)
    learner = Learner(body, {"masked_lm": MaskedLMSettings().build(BuildContext(body))})
    masking = TokenMasking(
        TokenMaskingSettings(), vocabulary=VOCABULARY, mask=MASK, special=frozenset(range(FIRST_WORD))
    )
    samples = [
        Sample(key=(), ids=ids, segments=(np.arange(len(ids)) > len(ids) // 2).astype(np.int64)) for ids in work.texts()
    ]
    machine = choose_machine(work.device, work.precision)
    settings = TrainingSettings(
        batch=BatchSettings(sequences=work.sequences),
        optimizer=OptimizerSettings(learning_rate=5e-5),
        schedule=ScheduleSettings(),
        budget=BudgetSettings(steps=work.steps + WARM_STEPS),
    )
    with tempfile.TemporaryDirectory() as folder, RunDirectory.create(Path(folder) / "run", "", {}, {}) as run:
        trainer = Trainer(
            learner.to(machine.device),
            ExampleSource(samples, seed=0),
            prepare=lambda sample: learner.prepare(masking(sample, derive_rng(0, "masking", *sample.key))),
            heldout=[],
            settings=settings,
            run=run,
            machine=machine,
            display=Display(quiet=True),
        )
        trainer.progress.total = work.steps + WARM_STEPS
        for _ in range(WARM_STEPS):
            trainer.step()
        yield trainer


def run_unmask(work: Work) -> Measured:
    """Train with unmask's own loop."""
    with unmask_trainer(work) as trainer:
        before, begun = trainer.progress.tokens, time.perf_counter()
        clock, flops = trainer.progress.seconds, 0.0
        for _ in range(work.steps):
            metrics = trainer.step()
            flops += metrics["flops_per_second"] * (trainer.progress.seconds - clock)
            clock = trainer.progress.seconds
        return Measured(int(trainer.progress.tokens - before), time.perf_counter() - begun, flops)


def run_trainer(work: Work) -> Measured:
    """Train with the Hugging Face Trainer and its own collator."""
    import transformers
    from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling

    layers, width, heads = SIZES[work.size]
    config = BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        vocab_size=VOCABULARY,
        hidden_dropout_prob=work.dropout,
        attention_probs_dropout_prob=work.dropout,
    )
    tokenizer = AutoTokenizer.from_pretrained(minilm())  # the same 30,522 pieces and special tokens
    examples = []
    for ids in work.texts():
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
            if work.device == "cuda" and len(times) + 1 in (WARM_STEPS, WARM_STEPS + work.steps):
                torch.cuda.synchronize()
            times.append(time.perf_counter())

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=work.sequences,
            max_steps=work.steps + WARM_STEPS,
            learning_rate=5e-5,
            bf16=work.precision == "bf16",
            use_cpu=work.device == "cpu",
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
    tokens = sum(sizes[WARM_STEPS : WARM_STEPS + work.steps])
    return Measured(tokens, times[-1] - times[WARM_STEPS - 1])
