"""The same masked-LM pretraining of a BERT or a ModernBERT, by `unmask.pretrain` and by the Hugging Face Trainer.

Both learn from the same sequences of random words, with AdamW, clipping, a masked-LM head and the same dropout. Ours is
the public entry point on a corpus on disk, from the command's first action to the finished model; the steps are timed
by the run's own metrics.jsonl. Tokens are real ones: padding counts for nobody.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import torch
from common import logged, minilm

import unmask
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.support.choices import Device, Precision
from unmask.training.machine import GPU_WORKERS, Machine, choose_machine

SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
    "modernbert": (22, 768, 12),
}
"""Layers, width and heads; `modernbert` is ModernBERT-base, the others are BERTs."""
MODERN = {"feed_forward": 1152, "positions": 8192, "window": 64, "global_every": 3}
"""The rest of ModernBERT-base."""
WARM_STEPS = 5
RATE = 0.15
SETTINGS = """
name = "benchmark"
seed = 0
masking = {{ kind = "token", rate = {rate} }}
objective = {{ masked_lm = {{ weight = 1.0 }} }}
optimizer = {{ kind = "adamw", learning_rate = 5e-5 }}
schedule = {{ kind = "linear", warmup = 0.05 }}
layout = {{ kind = "single", length = {length} }}
batch = {{ sequences = {sequences} }}
budget = {{ steps = {steps} }}
[tokenizer]
kind = "wordpiece"
vocabulary = 30522
[encoder]
{encoder}
"""


@dataclass(frozen=True)
class Work:
    """A masked-LM pretraining.

    Attributes:
        size: one of `SIZES`.
        data: `var` (lengths of mean 80, at most 128), or `full128`, `full512` … (all sequences of that length).
        precision: bf16 or float32.
        dropout: rate of dropout.
        sequences: per step.
        steps: timed steps, after `WARM_STEPS` others.
        device: cpu or cuda.
    """

    size: str
    data: str
    precision: str
    dropout: float
    sequences: int = 32
    steps: int = 30
    device: str = "cpu"

    @classmethod
    def parse(cls, case: str, **others: Any) -> Work:
        """Return the work of a case named SIZE-DATA-PRECISION-DROPOUT."""
        size, data, precision, dropout = case.split("-")
        return cls(size, data, precision, float(dropout), **others)

    @property
    def encoder(self) -> dict[str, Any]:
        """Settings of the encoder."""
        layers, width, heads = SIZES[self.size]
        body = {"layers": layers, "width": width, "heads": heads, "dropout": self.dropout}
        if self.size == "modernbert":
            return {"kind": "modernbert", **body, **MODERN}
        return {"kind": "bert", **body, "feed_forward": 4 * width}

    @property
    def all_steps(self) -> int:
        """Number of steps, warm-up included."""
        return self.steps + WARM_STEPS

    def lengths(self) -> np.ndarray:
        """Return the length of each sequence; with `var` a third of them has 128 tokens, the others are shorter."""
        count = self.sequences * self.all_steps
        if self.data.startswith("full"):
            return np.full(count, int(self.data.removeprefix("full")))
        return np.clip(np.random.default_rng(2).normal(82, 40, count), 16, 128).astype(int)

    def texts(self, words: list[str]) -> list[str]:
        """Return texts of random words, each a token, that make sequences of these lengths with [CLS] and [SEP]."""
        rng = np.random.default_rng(1)
        return [" ".join(words[i] for i in rng.integers(len(words), size=length - 2)) for length in self.lengths()]


def single_token_words(tokenizer: Tokenizer) -> list[str]:
    """Return the words of a vocabulary that are one token each."""
    found = [token for token in tokenizer.tokens(range(tokenizer.size)) if token.isascii() and token.isalpha()]
    return [word for word in found if word == word.lower()]


def run_unmask(work: Work) -> dict[str, Any]:
    """Pretrain with `unmask.pretrain`.

    Returns:
        Tokens, seconds and tokens_per_second of the timed steps, the share of the machine's peak that they reached, the
        seconds of the whole call, the most memory, and how it computed: precision, tokens of a micro-batch and of the
        largest step.
    """
    tokenizer = unmask.load_tokenizer(minilm())
    texts = work.texts(single_token_words(tokenizer))
    machine = choose_machine(work.device, work.precision)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, held in (("train", texts), ("heldout", texts[: work.sequences])):
            (folder / f"{part}.jsonl").write_bytes(b"\n".join(msgspec.json.encode({"text": text}) for text in held))
        (folder / "recipe.toml").write_text(
            SETTINGS.format(
                rate=RATE,
                length=int(work.lengths().max()),
                sequences=work.sequences,
                steps=work.all_steps,
                encoder="\n".join(f"{name} = {json.dumps(value)}" for name, value in work.encoder.items()),
            ),
            encoding="utf8",
        )
        corpus = unmask.build_corpus(
            folder / "train.jsonl", tokenizer, folder / "corpus", heldout=folder / "heldout.jsonl"
        )
        recipe = unmask.read_recipe(str(folder / "recipe.toml"))
        start = time.perf_counter()
        unmask.pretrain(
            recipe,
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
    progress = json.loads((checkpoint / "progress.json").read_bytes())
    return {
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "share_of_peak": flops / seconds / machine.matmul_peak(),
        "loss": timed[-1]["loss"],
        "precision": json.loads((run / "provenance.json").read_bytes())["inputs"]["precision"],
        "micro_tokens": progress["micro_tokens"],
        "peak_bytes": machine.memory(),
        "largest_step": max(line["tokens"] - last["tokens"] for last, line in pairwise(lines)),
    }


def _model(work: Work) -> Any:
    """Return the masked LM of a work, with random weights."""
    from transformers import BertConfig, BertForMaskedLM, ModernBertConfig, ModernBertForMaskedLM

    layers, width, heads = SIZES[work.size]
    if work.size == "modernbert":
        modern = ModernBertConfig(
            vocab_size=30522,
            num_hidden_layers=layers,
            hidden_size=width,
            num_attention_heads=heads,
            intermediate_size=MODERN["feed_forward"],
            sparse_prediction=True,
            pad_token_id=0,
            cls_token_id=101,
            sep_token_id=102,
            bos_token_id=101,
            eos_token_id=102,
        )
        return ModernBertForMaskedLM(modern)
    settings = BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        vocab_size=30522,
        hidden_dropout_prob=work.dropout,
        attention_probs_dropout_prob=work.dropout,
    )
    return BertForMaskedLM(settings)


def run_trainer(work: Work) -> dict[str, Any]:
    """Pretrain with the Hugging Face Trainer and its own collator; return what `run_unmask` does of the steps."""
    import transformers
    from transformers import AutoTokenizer, DataCollatorForLanguageModeling

    tokenizer = AutoTokenizer.from_pretrained(minilm())
    texts = work.texts(single_token_words(unmask.load_tokenizer(minilm())))
    found = tokenizer(texts, return_special_tokens_mask=True)
    examples = [{name: values[i] for name, values in found.items()} for i in range(len(texts))]
    times: list[float] = []
    sizes: list[int] = []

    class Collator(DataCollatorForLanguageModeling):  # type: ignore[misc,unused-ignore]
        def __call__(self, *args: Any, **settings: Any) -> Any:
            batch = super().__call__(*args, **settings)
            sizes.append(int(batch["attention_mask"].sum()))
            return batch

    class Clock(transformers.TrainerCallback):  # type: ignore[misc,unused-ignore]
        def on_step_end(self, *args: Any, **settings: Any) -> None:
            if work.device == "cuda" and len(times) + 1 in (WARM_STEPS, work.all_steps):
                torch.cuda.synchronize()
            times.append(time.perf_counter())

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=work.sequences,
            max_steps=work.all_steps,
            learning_rate=5e-5,
            bf16=work.precision == "bf16",
            use_cpu=work.device == "cpu",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_steps=10_000,
            dataloader_num_workers=GPU_WORKERS if work.device == "cuda" else 0,
        )
        trainer = transformers.Trainer(
            model=_model(work),
            args=arguments,
            train_dataset=examples,
            data_collator=Collator(tokenizer, mlm_probability=RATE),
            callbacks=[Clock()],
        )
        start = time.perf_counter()
        trainer.train()
        wall = time.perf_counter() - start
    # of random lengths it depends on the order; workers count in processes of their own
    tokens = sum(sizes[WARM_STEPS : work.all_steps]) or work.steps * work.sequences * int(work.lengths().max())
    seconds = times[-1] - times[WARM_STEPS - 1]
    return {"wall_seconds": wall, "tokens": tokens, "seconds": seconds, "tokens_per_second": tokens / seconds}
