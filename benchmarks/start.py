"""How long does it take until the command line answers, and until the first training step is done?

`unmask --help`, `unmask predict` of a text by a classifier of MiniLM's shape, `unmask pretrain bert-mini` on a corpus
that is there, and `unmask finetune classification` of MiniLM on the training examples of SST-2, each in fresh
processes, in turns with `import torch` alone and `import transformers` with its Trainer, which is where a script with
the Hugging Face Trainer begins. The first step is the one in which the model first learns something, be it one of those
that are timed to plan the run.
"""

from __future__ import annotations

import compileall
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import SHARED, add, minilm, parse
from corpus import TOKENIZER
from inference import LENGTH, write_classifier
from labelled import SST2

import unmask
from unmask.model.model import load_model

FIRST_STEP = """
import gc, sys
from unmask.cli.main import GARBAGE, main
gc.set_threshold(GARBAGE)
from unmask.training.loop import Trainer
step = Trainer.step
def first(self):
    found = step(self)
    print("first step", flush=True)
    sys.exit()
Trainer.step = first
sys.exit(main())
"""
TURNS = 7


def seconds(command: list[str], until: str = "") -> float:
    """Return how long a command takes, or until it prints a line."""
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if until and line.strip() == until:
                found = time.perf_counter() - begun
                process.kill()
                return found
    if until or process.returncode:
        raise RuntimeError(f"{command} ended with status {process.returncode}")
    return time.perf_counter() - begun


def commands(corpus: Path, examples: Path, model: str, classifier: Path) -> dict[str, list[str]]:
    """Return the commands by what they are measured until; for a first step, `--out` is still to be given.

    Args:
        corpus: corpus to pretrain on.
        examples: labeled file.
        model: directory of the model to fine-tune.
        classifier: directory of the model that predicts.
    """
    pretrain = ["pretrain", "bert-mini", "--corpus", str(corpus), "--set"]
    finetune = ["finetune", "classification", "--model", model, "--train", str(examples), "--no-frozen"]
    trainer = "from transformers import AutoModel, Trainer, TrainingArguments"
    arguments = {
        "help": ["-m", "unmask", "--help"],
        "predict": ["-m", "unmask", "predict", "--model", str(classifier), "A wonderful film."],
        "first_step": ["-c", FIRST_STEP, *pretrain, "budget.steps=1000"],
        "first_step_timed_run": ["-c", FIRST_STEP, *pretrain, "budget.minutes=30"],
        "first_step_finetune": ["-c", FIRST_STEP, *finetune],
        "import_torch": ["-c", "import torch"],
        "import_trainer": ["-c", trainer],
    }
    return {until: [sys.executable, *some] for until, some in arguments.items()}


def main() -> None:
    """Measure in turns."""
    parse(__doc__)
    compileall.compile_dir(Path(unmask.__file__).parent, quiet=1)  # as pip does when it installs a package
    with tempfile.TemporaryDirectory() as name:
        folder, words = Path(name), unmask.load_tokenizer(TOKENIZER)
        unmask.build_corpus(SHARED / "text/wikipedia/train-0.jsonl.xz", words, folder / "corpus", workers=2)
        classifier = write_classifier(load_model(minilm()).encoder.settings, LENGTH, folder / "classifier")
        known = commands(folder / "corpus", SHARED / SST2, minilm(), classifier)
        for turn in range(TURNS):
            for until, command in known.items():
                out, stop = ["--out", str(folder / f"{until}-{turn}")], "first step"
                taken = seconds([*command, *out], stop) if until.startswith("first_step") else seconds(command)
                add("start", {"until": until, "round": turn}, {"seconds": taken})


if __name__ == "__main__":
    main()
