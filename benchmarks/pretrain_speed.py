"""How fast is masked-LM pretraining beside the Hugging Face Trainer, at the same work (see engines.py)?

`trainer` is the Trainer as installed, `trainer-tuned` the same after telling glibc to keep freed memory (what unmask
does by itself; about twice as fast where page faults are dear). Each engine runs in a process of its own; engines take
turns, and each figure is the median over the turns.

Cases are named SIZE-DATA-PRECISION-DROPOUT: mini or small; `var` (lengths of mean 80, at most 128), `full128` or
`full512` (all of that length); bf16 or float32; the dropout rate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any

from common import add
from engines import Work, run_trainer, run_unmask

from unmask.training.machine import choose_machine, keep_memory

CASES = [
    "mini-var-bf16-0.1",
    "mini-var-bf16-0.0",
    "mini-var-float32-0.1",
    "mini-full128-bf16-0.1",
    "mini-full512-bf16-0.1",
    "small-var-bf16-0.1",
    "small-var-float32-0.1",
]
ENGINES = ("unmask", "trainer", "trainer-tuned")


def measure(engine: str, case: str, steps: int) -> dict[str, float]:
    """Run an engine in this process."""
    size, data, precision, dropout = case.split("-")
    if engine == "trainer-tuned":
        keep_memory()
    run = run_unmask if engine == "unmask" else run_trainer
    found = run(Work(size, data, precision, float(dropout), steps=steps))
    measured = {"tokens": found.tokens, "seconds": found.seconds, "tokens_per_second": found.tokens / found.seconds}
    if engine == "unmask":
        measured["share_of_peak"] = found.flops / found.seconds / choose_machine("cpu", precision).matmul_peak()
    return measured


def compare(case: str, steps: int, rounds: int) -> dict[str, Any]:
    """Let the engines take turns."""
    found: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    shares: list[float] = []
    for _ in range(rounds):
        for engine in ENGINES:
            command = [sys.executable, __file__, "--engine", engine, "--cases", case, "--steps", str(steps)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            measured = json.loads(output.splitlines()[-1])
            found[engine].append(measured["tokens_per_second"])
            shares += [measured["share_of_peak"]] if engine == "unmask" else []
            print(case, engine, round(found[engine][-1]), flush=True)
    medians = {engine: statistics.median(values) for engine, values in found.items()}
    ratios = {engine: medians["unmask"] / value for engine, value in medians.items() if engine != "unmask"}
    return {"tokens_per_second": found, "median": medians, "ratio": ratios, "share_of_peak": statistics.median(shares)}


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
    for case in options.cases:
        add("pretrain_speed", {"case": case, **compare(case, options.steps, options.rounds)})


if __name__ == "__main__":
    main()
