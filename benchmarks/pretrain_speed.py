"""How fast is masked-LM pretraining, compared with the Hugging Face Trainer on the same sequences (see engines.py)?

`trainer` is the Trainer as installed, `trainer-tuned` the same after telling glibc to keep freed memory (unmask does so
by itself). Each engine runs in a process of its own; engines take turns, and tables show medians over the rounds.

Cases are named SIZE-DATA-PRECISION-DROPOUT: tiny, mini, small, base or large; `var` (lengths of mean 80, at most 128),
`full128` or `full512` (all of that length); bf16 or float32; the dropout rate.
"""

from __future__ import annotations

import argparse
import json

from common import add, take_turns
from engines import Work, run_trainer, run_unmask

from unmask.training.machine import keep_memory

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
ENGINES = ("unmask", "trainer", "trainer-tuned")


def main() -> None:
    """Measure the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), metavar="CASE")
    parser.add_argument("--steps", type=int, help="timed steps per round")
    parser.add_argument("--sequences", type=int, help="per step")
    parser.add_argument("--rounds", type=int, nargs="+", default=[0, 1, 2], help="their numbers")
    parser.add_argument("--engine", choices=ENGINES, help="run only this one, in this process, and print the result")
    parser.add_argument("--round", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()

    def work(case: str) -> Work:
        steps, sequences = CASES.get(case, (20, 32))
        return Work.parse(case, steps=options.steps or steps, sequences=options.sequences or sequences)

    if options.engine:
        if options.engine == "trainer-tuned":
            keep_memory()
        run = run_unmask if options.engine == "unmask" else run_trainer
        print(json.dumps(run(work(options.cases[0]))))
        return
    for case in options.cases:
        steps, sequences = work(case).steps, work(case).sequences
        arguments = ["--cases", case, "--steps", str(steps), "--sequences", str(sequences)]
        for number, engine, found in take_turns(__file__, ENGINES, options.rounds, arguments):
            size, data, precision, dropout = case.split("-")
            about = {"case": case, "size": size, "data": data, "asked": precision, "dropout": float(dropout)}
            record = {**about, "sequences": sequences, "engine": engine, "round": number, **found}
            add("pretrain_speed", record, instead=("case", "engine", "round"))


if __name__ == "__main__":
    main()
