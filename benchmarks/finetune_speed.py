"""How fast is fine-tuning, compared with the Hugging Face Trainer at the same work and the same accuracy?

MiniLM (a sentence-embedding model, not trained on SST-2's labels) learns SST-2 from phrases of its training set, scored
on 1,000 whole sentences of the same set, none of whose phrases is trained on. Same examples, epochs, batch, learning
rate, schedule, optimizer settings, clipping and dropout on both sides. `tuned`: glibc is told to keep freed memory.
Engines take turns, one seed per round, each in a process of its own. Timed are the steps after the first three, and the
whole call, from the checkpoint on disk to the scores; the memory is the largest that the process had.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any, cast

from common import add, logged, minilm, take_turns
from files import sst2_files

import unmask
from unmask.model.model import load_model
from unmask.support.choices import Device, Precision
from unmask.training.machine import keep_memory
from unmask.workflows.finetuning.job import defaults

ENGINES = (
    *("unmask bf16", "unmask float32"),
    *("trainer float32", "trainer bf16", "trainer bf16 tuned", "trainer float32 tuned"),
)
WARM_STEPS = 3


def run_unmask(
    train: Path, dev: Path, epochs: float, seed: int, precision: str, device: Device = "cpu"
) -> dict[str, Any]:
    """Fine-tune with `unmask.finetune`; return seconds per step, of the whole call, and the accuracy."""
    with tempfile.TemporaryDirectory() as folder:
        run, start = Path(folder) / "run", time.perf_counter()
        unmask.finetune(
            "classification",
            minilm(),
            [train],
            run,
            dev=[dev],
            settings={"budget.epochs": epochs, "seed": seed},
            device=device,
            precision=cast(Precision, precision),
            quiet=True,
        )
        wall = time.perf_counter() - start
        times = [line["seconds"] for line in logged(run)]
        accuracy = json.loads((run / "dev.json").read_bytes())["metrics"]["accuracy"]
    return _record(times, wall, accuracy)


def run_trainer(
    train: Path, dev: Path, epochs: float, seed: int, precision: str, device: Device = "cpu"
) -> dict[str, Any]:
    """The same with the Hugging Face Trainer."""
    import transformers

    start = time.perf_counter()
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
    rule: Any = defaults("classification", load_model(minilm()).encoder.settings, len(examples), pretrained=True)
    batch = rule["batch"]["sequences"]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            num_train_epochs=epochs,
            learning_rate=rule["optimizer"]["learning_rate"],
            warmup_steps=int(0.1 * epochs * len(examples) / batch),
            weight_decay=0.01,
            adam_epsilon=1e-6,
            per_device_train_batch_size=batch,
            per_device_eval_batch_size=64,
            bf16=precision == "bf16",
            use_cpu=device == "cpu",
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
    return _record(times, time.perf_counter() - start, accuracy)


def _record(times: list[float], wall: float, accuracy: float) -> dict[str, Any]:
    """Return the figures of a run whose steps ended at these times."""
    steps = len(times) - WARM_STEPS
    seconds = (times[-1] - times[WARM_STEPS - 1]) / steps
    return {"seconds_per_step": seconds, "steps": steps, "wall_seconds": wall, "accuracy": accuracy}


def measure(engine: str, examples: int, epochs: float, seed: int) -> dict[str, Any]:
    """Run an engine in this process."""
    name, precision, *tuned = engine.split()
    if tuned:
        keep_memory()
    with tempfile.TemporaryDirectory() as folder:
        train, dev = sst2_files(examples, Path(folder))
        found = (run_unmask if name == "unmask" else run_trainer)(train, dev, epochs, seed, precision)
    return found | {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main() -> None:
    """Let the engines take turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=2_000)
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES, metavar="ENGINE")
    parser.add_argument("--engine", choices=ENGINES, help="run only this one, in this process, and print the result")
    parser.add_argument("--round", type=int, default=0, help="the seed of that run")
    options = parser.parse_args()
    if options.engine:
        print(json.dumps(measure(options.engine, options.examples, options.epochs, options.round)))
        return
    arguments = ["--examples", str(options.examples), "--epochs", str(options.epochs)]
    for seed, engine, found in take_turns(__file__, options.engines, options.seeds, arguments):
        record = {"engine": engine, "seed": seed, "examples": options.examples, "epochs": options.epochs, **found}
        add("finetune_speed", record, instead=("engine", "seed", "examples", "epochs"))


if __name__ == "__main__":
    main()
