"""Summaries of runs, read from their directories without changing anything.

Input: directories. Output: a `Summary` of each run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from unmask.support.errors import UserError
from unmask.training.runs.directory import BEFORE, Provenance, RunDirectory

MARKS = {"recipe.toml", "provenance.json", "metrics.jsonl"}
"""A folder with at least two of these files is considered a run, intact or damaged."""
INSIDES = {"checkpoints", "events", "model", "plots", *BEFORE}
"""Folders of a run that contain no other runs."""
SEEDS = "seeds.json"
"""File that `finetune --seeds` and `--search` write next to their runs."""
NO_METRICS = {"kind", "step", "tokens", "seconds", "epochs"}
"""Fields of a line of metrics.jsonl that are not metrics."""


class Reached(msgspec.Struct, frozen=True):
    """Progress of a run.

    Attributes:
        step, tokens, seconds: completed so far.
        total: steps of the budget; 0: not known.
        skipped: steps that were skipped because the loss or gradient was not finite.
    """

    step: int
    tokens: int
    seconds: float
    total: int = 0
    skipped: int = 0


class Seeds(msgspec.Struct, frozen=True):
    """seeds.json: the results of several fine-tuning runs in one folder.

    Attributes:
        rates: scores of the learning rates, if the learning rate was searched.
        seeds: metrics on the dev data, by run.
    """

    rates: dict[str, float]
    seeds: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Summary:
    """Summary of a run.

    Attributes:
        path: its directory.
        recipe, provenance: contents of the files of these names.
        running: whether a program is writing to it.
        reached: its progress: that of its log while it runs, otherwise that of the checkpoint it would resume from.
        train, heldout: lines of metrics.jsonl up to that step, in order.
    """

    path: Path
    recipe: Mapping[str, Any]
    provenance: Provenance
    running: bool
    reached: Reached
    train: Sequence[Mapping[str, Any]]
    heldout: Sequence[Mapping[str, Any]]

    @property
    def name(self) -> str:
        """Name of the recipe, or of the task of a fine-tuning run."""
        return str(self.recipe.get("name", self.recipe.get("task", {}).get("kind", "?")))

    @property
    def kind(self) -> str:
        """Pretraining or fine-tuning."""
        return "fine-tuning" if "task" in self.recipe else "pretraining"

    @property
    def state(self) -> str:
        """Running, finished or stopped, with the step."""
        step, total = self.reached.step, self.reached.total
        position = f"step {step:,} of {total:,}" if total else f"step {step:,}"
        if self.running:
            return f"running, {position}"
        finished = step >= total and (self.path / "report.md").exists()
        return "finished" if finished else f"stopped at {position}"

    @property
    def peak(self) -> float | None:
        """Peak of the machine's matrix products in floating-point operations per second, if it was measured."""
        return self.provenance.machine.get("matmul_flops_per_second")


def find_runs(folder: str | Path) -> Iterator[Path]:
    """Yield the runs at and below a folder, intact or damaged, sorted by name; hidden folders are skipped.

    Raises:
        UserError: there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError("no such folder", file=folder, remedy="pass the --out of a run, or a folder of runs")
    for root, folders, files in os.walk(folder):
        found = len(MARKS.intersection(files)) > 1
        folders[:] = sorted(name for name in folders if name[0] != "." and not (found and name in INSIDES))
        if found:
            yield Path(root)


def read_run(path: str | Path) -> Summary:
    """Read a run; its checkpoints are not verified.

    Raises:
        UserError: there is no run, or it is damaged.
    """
    path = Path(path)
    run = RunDirectory(path)
    recipe, provenance, running = run.read_recipe(), run.read_provenance(), run.is_in_use()
    train, heldout = run.read_metrics("train"), run.read_metrics("heldout")
    try:
        logged = msgspec.convert(train, list[Reached])
    except msgspec.ValidationError as error:
        raise UserError(f"the file is damaged ({error})", file=run.metrics) from error
    reached = _saved(run.checkpoints) or Reached(0, 0, 0.0)
    if logged and (running or not reached.total):
        reached = msgspec.structs.replace(logged[-1], total=reached.total, skipped=reached.skipped)
    train, heldout = ([line for line in lines if line["step"] <= reached.step] for lines in (train, heldout))
    return Summary(path, recipe, provenance, running, reached, train, heldout)


def read_seeds(path: Path) -> Seeds | None:
    """Read seeds.json of several fine-tuning runs; return None if there is none.

    Raises:
        UserError: the file is damaged.
    """
    file = path / SEEDS
    try:
        return msgspec.json.decode(file.read_bytes(), type=Seeds)
    except OSError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"the file is damaged ({error})", file=file) from error


def metric_names(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of all metrics in some lines of a log, in order of appearance."""
    return [name for name in dict.fromkeys(name for line in lines for name in line) if name not in NO_METRICS]


def _saved(checkpoints: Path) -> Reached | None:
    """Return the progress of the newest checkpoint with readable progress."""
    for path in sorted(checkpoints.glob("step-*"), reverse=True):
        try:
            return msgspec.json.decode((path / "progress.json").read_bytes(), type=Reached)
        except (OSError, msgspec.DecodeError):
            continue
    return None
