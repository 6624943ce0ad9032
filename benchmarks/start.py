"""How long does it take until the command line answers, and until the first training step is done?

`unmask --help` and `unmask pretrain bert-mini` on a corpus that is there, each in fresh processes, in turns with
`import torch` alone and `import transformers` with its Trainer, which is where a script with the Hugging Face Trainer
begins. The first step is the one in which the model first learns something, be it one of those that are timed to plan
the run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import SHARED, add

import unmask

FIRST_STEP = """
import sys, time
from unmask.training.loop import Trainer
from unmask.cli.main import main
step = Trainer.step
def first(self):
    found = step(self)
    print("first step", flush=True)
    sys.exit()
Trainer.step = first
sys.exit(main())
"""


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


def main() -> None:
    """Measure in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    python = sys.executable
    names = ("help", "first_step", "first_step_timed_run", "import_torch", "import_trainer")
    found: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = sorted((SHARED / "text/wikipedia").glob("train-*.jsonl.xz"))[:1]
        tokenizer = unmask.load_tokenizer(SHARED.parent / "vocabularies/bert-base-uncased")
        unmask.build_corpus(text, tokenizer, folder / "corpus", workers=2)
        pretrain = [python, "-c", FIRST_STEP, "pretrain", "bert-mini", "--corpus", str(folder / "corpus"), "--out"]
        for turn in range(options.turns):
            found["help"].append(seconds([python, "-m", "unmask", "--help"]))
            for kind, budget in (("first_step", "budget.steps=1000"), ("first_step_timed_run", "budget.minutes=30")):
                run = str(folder / f"{kind}-{turn}")
                found[kind].append(seconds([*pretrain, run, "--set", budget], until="first step"))
            found["import_torch"].append(seconds([python, "-c", "import torch"]))
            found["import_trainer"].append(
                seconds([python, "-c", "from transformers import AutoModel, Trainer, TrainingArguments"])
            )
    for name, values in found.items():
        for turn, value in enumerate(values):
            add("start", {"until": name, "round": turn, "seconds": value}, instead=("until", "round"))


if __name__ == "__main__":
    main()
