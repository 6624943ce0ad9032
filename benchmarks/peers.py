"""The Hugging Face Trainer, as all benchmarks use it that compare with it.

Import it where the Trainer runs only: transformers costs memory that unmask does not need.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
import transformers

from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.families import BodySettings
from unmask.families.checkpoints.check import body_on_meta
from unmask.families.checkpoints.huggingface import write_config

INIT_STD = 0.02
"""Standard deviation of initial weights, transformers' default."""
QUIET: dict[str, Any] = {
    "save_strategy": "no",
    "report_to": [],
    "disable_tqdm": True,
    "logging_steps": 10_000,
    "use_cpu": True,
}


class Clock(transformers.TrainerCallback):  # type: ignore[misc,unused-ignore]
    """The seconds of training without those of saving.

    Args:
        waits: steps at whose end the GPU is waited for; none on a CPU.

    Attributes:
        ends: seconds until the end of each step.
        saved: seconds until each checkpoint, by step.
    """

    def __init__(self, waits: Collection[int] = ()) -> None:
        self.waits = waits

    def on_train_begin(self, *args: Any, **settings: Any) -> None:
        """Start."""
        self.start = time.perf_counter()
        self.ends: list[float] = []
        self.saved: dict[int, float] = {}

    def on_step_end(self, *args: Any, **settings: Any) -> None:
        """Note the end of a step."""
        if len(self.ends) + 1 in self.waits:
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter() - self.start)

    def on_save(self, args: Any, state: Any, control: Any, **settings: Any) -> None:
        """Leave out the seconds since the end of the step."""
        self.saved[state.global_step] = round(self.ends[-1], 1)
        self.start += time.perf_counter() - self.start - self.ends[-1]


def masked_lm(settings: BodySettings, tokenizer: Tokenizer) -> Any:
    """Return transformers' masked LM of a body, with random weights."""
    with tempfile.TemporaryDirectory() as folder:
        write_config(Path(folder), body_on_meta(settings, tokenizer.size), ["masked_lm"], pad=tokenizer.pad)
        config = transformers.AutoConfig.from_pretrained(folder, initializer_range=INIT_STD, sparse_prediction=True)
    return transformers.AutoModelForMaskedLM.from_config(config)  # type: ignore[no-untyped-call,unused-ignore]


def masking(tokenizer: Path | str, rate: float) -> Any:
    """Return the collator of masked language modeling."""
    words = transformers.AutoTokenizer.from_pretrained(tokenizer)
    return transformers.DataCollatorForLanguageModeling(words, mlm_probability=rate)


def trainer(
    model: Any,
    examples: Any,
    collate: Any,
    out: Path,
    *,
    clock: Clock,
    **changes: Any,
) -> Any:
    """Return a Trainer; `changes` are its arguments beside `QUIET`."""
    arguments = transformers.TrainingArguments(output_dir=str(out), **{**QUIET, **changes})
    return transformers.Trainer(
        model=model, args=arguments, train_dataset=examples, data_collator=collate, callbacks=[clock]
    )
