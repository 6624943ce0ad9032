"""How fast is fine-tuning beside the Hugging Face Trainer, at the same work and the same accuracy?

MiniLM (a sentence-embedding model, not trained on SST-2's labels) learns SST-2 from 12,000 phrases of its training set,
scored on 2,000 whole sentences of the same set, none of whose phrases is trained on. Same examples, passes, batch,
learning rate, schedule, optimiser settings, clipping and dropout on both sides. `tuned`: glibc is told to keep freed
memory. Engines take turns, a seed each, every one in a process of its own; time is that of the steps after the first
three, without evaluation and checkpoints.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import logged, minilm, write
from finetuning_rule import split

import unmask
from unmask.finetuning.rule import defaults
from unmask.model import load_model
from unmask.training.machine import choose_machine, keep_memory

ENGINES = ("unmask bf16", "trainer float32", "trainer bf16", "trainer bf16 tuned", "trainer float32 tuned")
WARM_STEPS = 3
BATCH = 32


def run_unmask(train: Path, dev: Path, passes: float, seed: int, precision: str) -> tuple[float, float]:
    """Return seconds a step and dev accuracy."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        unmask.finetune(
            "classification",
            minilm(),
            [train],
            run,
            dev=[dev],
            settings={"budget.epochs": passes, "seed": seed},
            machine=choose_machine("cpu", precision),
            quiet=True,
        )
        seconds = [line["seconds"] for line in logged(run)]
        accuracy = json.loads((run / "dev.json").read_bytes())["metrics"]["accuracy"]
    return (seconds[-1] - seconds[WARM_STEPS - 1]) / (len(seconds) - WARM_STEPS), accuracy


def run_trainer(train: Path, dev: Path, passes: float, seed: int, precision: str) -> tuple[float, float]:
    """The same with the Hugging Face Trainer."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())

    def read(path: Path) -> list[dict[str, Any]]:
        rows = [line.split("\t") for line in path.read_text(encoding="utf8").splitlines()[1:]]
        found = tokenizer([text for text, _ in rows], truncation=True, max_length=128)
        return [
            {"input_ids": ids, "attention_mask": mask, "labels": int(label)}
            for ids, mask, (_, label) in zip(found["input_ids"], found["attention_mask"], rows, strict=True)
        ]

    times: list[float] = []

    class Clock(transformers.TrainerCallback):  # type: ignore[misc,unused-ignore]
        def on_step_end(self, *args: Any, **settings: Any) -> None:
            times.append(time.perf_counter())

    def score(found: Any) -> dict[str, float]:
        return {"accuracy": 100 * float((found.predictions.argmax(-1) == found.label_ids).mean())}

    examples = read(train)
    rule = defaults("classification", load_model(minilm()).encoder.settings, len(examples), pretrained=True)
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            num_train_epochs=passes,
            learning_rate=rule["optimizer"]["learning_rate"],  # type: ignore[index]
            warmup_steps=int(0.1 * passes * len(examples) / BATCH),
            weight_decay=0.01,
            adam_epsilon=1e-6,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=64,
            bf16=precision == "bf16",
            use_cpu=True,
            seed=seed,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_steps=10_000,
        )
        trainer = transformers.Trainer(
            model=transformers.AutoModelForSequenceClassification.from_pretrained(minilm(), num_labels=2),
            args=arguments,
            train_dataset=examples,
            eval_dataset=read(dev),
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            compute_metrics=score,
            callbacks=[Clock()],
        )
        trainer.train()
        accuracy = trainer.evaluate()["eval_accuracy"]
    return (times[-1] - times[WARM_STEPS - 1]) / (len(times) - WARM_STEPS), accuracy


def measure(engine: str, examples: int, passes: float, seed: int) -> dict[str, float]:
    """Run an engine in this process."""
    name, precision, *tuned = engine.split()
    if tuned:
        keep_memory()
    with tempfile.TemporaryDirectory() as folder:
        train, dev = split("sst2", examples, Path(folder))
        run = run_unmask if name == "unmask" else run_trainer
        seconds, accuracy = run(train, dev, passes, seed, precision)
    return {"seconds_per_step": seconds, "accuracy": accuracy}


def main() -> None:
    """Let the engines take turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=12_000)
    parser.add_argument("--passes", type=float, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES, metavar="ENGINE")
    parser.add_argument("--measure", action="store_true", help="run one engine with one seed, in this process")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.engines[0], options.examples, options.passes, options.seeds[0])))
        return
    found: dict[str, list[dict[str, float]]] = {engine: [] for engine in options.engines}
    for seed in options.seeds:
        for engine in options.engines:
            command = [sys.executable, __file__, "--measure", "--engines", engine, "--seeds", str(seed)]
            command += ["--examples", str(options.examples), "--passes", str(options.passes)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[engine].append(json.loads(output.splitlines()[-1]))
            print(seed, engine, found[engine][-1], flush=True)
            medians = {
                engine: statistics.median(run["seconds_per_step"] for run in runs)
                for engine, runs in found.items()
                if runs
            }
            ratios = {engine: value / medians[options.engines[0]] for engine, value in medians.items()}
            write("finetune_speed", {"runs_of": found, "examples": options.examples, "ratio": ratios})


if __name__ == "__main__":
    main()
