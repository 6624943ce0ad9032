"""Does our training loop learn as well as the Hugging Face Trainer's, with the same settings?

MiniLM (a sentence-embedding model that has seen the texts of SQuAD) by the default rule, in both loops. SQuAD and all
of SST-2 are read once, the others as often as by default. The score is that of the last step on a part that served no
choice.

The settings that unmask resolves (learning rate, schedule, epochs, batch, weight decay, dropout, precision), its
samples (text, truncation, windows, targets) and its initial weights, those of the new head among them, go to the
Trainer. The trained model is scored by unmask, whose predictions equal transformers'. So what differs is the loop:
batches padded to their longest text, autocast instead of bf16 copies, torch's AdamW, another random order, and other
draws of dropout; in question answering also the loss of transformers, whose softmax is over the question and the
padding too.
"""

from __future__ import annotations

import shutil
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from common import RUNS, SEEDS, SHARED, add, logged, minilm, parse
from files import sst2_files
from labelled import SST2, SST2_DEV

import unmask
from unmask.data.batches.batch import Sample
from unmask.model.model import save_model
from unmask.training.machine import choose_machine, keep_memory
from unmask.training.runs.display import Display
from unmask.workflows.finetuning.job import FinetuningJob, InitialModel, LabelledFiles
from unmask.workflows.finetuning.prepare import finished_model, prepare

ONCE = {"budget.epochs": 1}
SICK, CONLL, SQUAD = "pairs/sick/SICK", "ner/conll2003/eng", "qa/squad"
DATA: dict[str, tuple[str, str, str, str, dict[str, Any]]] = {
    "sst2-2000": ("classification", "accuracy", SST2, SST2_DEV, {}),
    "sick-entailment": ("classification", "accuracy", f"{SICK}_train.txt.xz", f"{SICK}_test_annotated.txt.xz", {}),
    "conll2003": ("token-classification", "f1", f"{CONLL}.train.xz", f"{CONLL}.testb.xz", {}),
    "squad-sample": ("question-answering", "f1", f"{SQUAD}/train_sample.json.xz", f"{SQUAD}/dev-v1.1.json.xz", ONCE),
    "sst2": ("classification", "accuracy", SST2, SST2_DEV, ONCE),
}
"""Of each data set the task, the metric, the files and the settings."""
LOOPS = ("unmask", "trainer")
IGNORED = -100
"""The label that transformers leaves out of the loss."""


def finetune(task: str, train: Path, dev: Path, out: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Fine-tune MiniLM with the Trainer; leave `out`/model, and return the learning rate and what the steps took.

    glibc is told to keep freed memory (see unmask.training.machine), which speeds the peer up.
    """
    import peers
    import transformers

    shutil.rmtree(out, ignore_errors=True)
    keep_memory()
    machine = choose_machine("cpu")
    job = FinetuningJob(task, InitialModel(minilm()), LabelledFiles([train], [dev]), settings, machine=machine)
    ready = prepare(job, machine, Display(quiet=True), choosing=False)
    recipe, kind = ready.recipe, ready.recipe.task.part
    base = finished_model(ready.base, ready.learner, ready.data.labels, recipe.task)
    save_model(out / "start", base, "")
    words = transformers.AutoTokenizer.from_pretrained(out / "start")
    loaders = {
        "classification": transformers.AutoModelForSequenceClassification,
        "token_classification": transformers.AutoModelForTokenClassification,
        "question_answering": transformers.AutoModelForQuestionAnswering,
    }
    collators = {"token_classification": transformers.DataCollatorForTokenClassification}

    optimizer, samples, clock = recipe.optimizer, ready.train.samples, peers.Clock()
    assert optimizer.betas is not None and recipe.batch.sequences is not None
    trainer = peers.trainer(
        loaders[kind].from_pretrained(out / "start"),
        [_example(sample, kind) for sample in samples],
        collators.get(kind, transformers.DataCollatorWithPadding)(words),
        out / "trainer",
        clock=clock,
        bf16=machine.precision == "bf16",
        num_train_epochs=recipe.budget.epochs or 1,
        max_steps=recipe.budget.steps or -1,
        learning_rate=optimizer.learning_rate,
        lr_scheduler_type=recipe.schedule.kind,
        warmup_steps=recipe.schedule.warmup,
        weight_decay=optimizer.weight_decay,
        adam_beta1=optimizer.betas[0],
        adam_beta2=optimizer.betas[1],
        adam_epsilon=optimizer.epsilon,
        max_grad_norm=optimizer.clip,
        per_device_train_batch_size=recipe.batch.sequences,
        seed=recipe.seed,
        remove_unused_columns=False,
    )
    trainer.train()
    trainer.save_model(str(out / "model"))
    base.tokenizer.save(out / "model", length=recipe.task.length)
    shutil.rmtree(out / "start")
    epochs = len(clock.ends) * recipe.batch.sequences / len(samples)
    steps = {"epochs": round(epochs, 4), "step": len(clock.ends), "step_seconds": clock.ends[-1]}
    return {"learning_rate": optimizer.learning_rate, **steps}


def _example(sample: Sample, kind: str) -> dict[str, Any]:
    """Return a sample as the Trainer's collators take it."""
    found: dict[str, Any] = {"input_ids": sample.ids.tolist(), "attention_mask": [1] * len(sample)}
    if sample.segments is not None:
        found["token_type_ids"] = sample.segments.tolist()
    labels = sample.labels[kind]
    if kind == "classification":
        found["labels"] = int(labels[0])
    elif kind == "token_classification":
        tags = np.full(len(sample), IGNORED)
        tags[sample.positions["first"]] = labels
        found["labels"] = tags.tolist()
    else:
        found["start_positions"], found["end_positions"] = map(int, labels)
    return found


def compare(name: str, loop: str, seed: int, out: Path) -> dict[str, Any]:
    """Fine-tune in a loop; return the record."""
    task, metric, train, dev, settings = DATA[name]
    files, settings = SHARED / train, {**settings, "seed": seed}
    begun = time.time()
    if name == "sst2-2000":
        out.parent.mkdir(parents=True, exist_ok=True)
        files, _ = sst2_files(2000, out.parent)
    if loop == "unmask":
        how: dict[str, Any] = {"frozen": False, "all_examples": True, "resume": (out / "provenance.json").exists()}
        unmask.finetune(task, minilm(), [files], out, settings=settings, **how)
        last = logged(out)[-1]
        rate = tomllib.loads((out / "recipe.toml").read_text(encoding="utf8"))["optimizer"]["learning_rate"]
        record = {"learning_rate": rate, **{part: last[part] for part in ("epochs", "step")}}
        record["step_seconds"] = last["seconds"]
    else:
        record = finetune(task, files, SHARED / dev, out, settings)
    score = unmask.evaluate(out / "model", [SHARED / dev], quiet=True)["metrics"][metric]
    return {"metric": metric, "score": score, **record, "seconds": round(time.time() - begun, 1)}


def main() -> None:
    """Fine-tune in all loops."""
    options = parse(__doc__, DATA, seeds=SEEDS, runs=RUNS)
    for name in options.names:
        for seed in options.seeds:
            for loop in LOOPS:
                out = options.runs / "parity" / f"{name}-{loop}-{seed}"
                add("parity", {"task": name, "method": loop, "seed": seed}, compare(name, loop, seed, out))


if __name__ == "__main__":
    main()
