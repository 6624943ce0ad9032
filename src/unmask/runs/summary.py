"""What a run is and how far it has come, read from its directory without disturbing it.

In: directories. Out: a `Summary` of each run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from unmask.errors import UserError
from unmask.runs.directory import PREPARED, Provenance, RunDirectory

MARKS = {"recipe.toml", "provenance.json", "metrics.jsonl"}
"""A folder with two of these files is taken for a run, whole or damaged."""
INSIDES = {"checkpoints", "events", "model", "plots", PREPARED}
"""Folders of a run in which no other run lies."""
SEEDS = "seeds.json"
"""What `finetune --seeds` and `--search` write beside their runs."""
NO_METRICS = {"kind", "step", "tokens", "seconds", "epochs", "passes"}
"""Fields of a line of metrics.jsonl that are not metrics; `passes` is what earlier versions called `epochs`."""


class Reached(msgspec.Struct, frozen=True):
    """How far a run has come.

    Attributes:
        step, tokens, seconds: done.
        total: steps of the budget; 0: not known.
        skipped: steps left out because loss or gradient was not finite.
    """

    step: int
    tokens: int
    seconds: float
    total: int = 0
    skipped: int = 0


class Seeds(msgspec.Struct, frozen=True):
    """seeds.json: what several fine-tunings left, each of them a run in the same folder.

    Attributes:
        rates: the scores by which a learning rate was chosen, where it was searched.
        seeds: metrics on the dev data, by run.
    """

    rates: dict[str, float]
    seeds: dict[str, dict[str, float]]


@dataclass(frozen=True)
class Summary:
    """A run.

    Attributes:
        path: its directory.
        recipe, provenance: the files of these names.
        running: a program is writing to it.
        reached: how far it has come: by its log while it runs, else by the newest checkpoint, where it would go on.
        train, heldout: lines of metrics.jsonl up to there, in order.
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
        """Of the recipe; a fine-tuning's is its task."""
        return str(self.recipe.get("name", self.recipe.get("task", {}).get("kind", "?")))

    @property
    def kind(self) -> str:
        """Pretraining or fine-tuning."""
        return "fine-tuning" if "task" in self.recipe else "pretraining"

    @property
    def state(self) -> str:
        """Running, finished, or stopped, and at which step."""
        step, total = self.reached.step, self.reached.total
        place = f"step {step:,} of {total:,}" if total else f"step {step:,}"
        if self.running:
            return f"running, {place}"
        done = step >= total and (self.path / "report.md").exists()
        return "finished" if done else f"stopped at {place}"

    @property
    def peak(self) -> float | None:
        """Of the machine's matrix products, in floating-point operations a second, where it was measured."""
        return self.provenance.machine.get("matmul_flops_per_second")


def find_runs(folder: Path) -> Iterator[Path]:
    """Yield the runs at and below a folder, whole or damaged, in the order of their names; hidden folders are left out.

    Raises:
        UserError: there is no such folder.
    """
    if not folder.is_dir():
        raise UserError("no such folder", file=folder, remedy="name the --out of a run, or a folder of runs")
    for here, folders, files in os.walk(folder):
        found = len(MARKS.intersection(files)) > 1
        folders[:] = sorted(name for name in folders if name[0] != "." and not (found and name in INSIDES))
        if found:
            yield Path(here)


def read_run(path: Path) -> Summary:
    """Read a run; its checkpoints are not checked.

    Raises:
        UserError: no run is there, or it is damaged.
    """
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
    """Read what several fine-tunings left; None: nothing else than a run can be here.

    Raises:
        UserError: the file is damaged.
    """
    file = path / SEEDS
    try:
        return msgspec.json.decode(file.read_bytes(), type=Seeds)
    except OSError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"the file is damaged ({error})", file=file) from error


def metric_names(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of all metrics that some lines of a log hold, in order."""
    return [name for name in dict.fromkeys(name for line in lines for name in line) if name not in NO_METRICS]


def _saved(checkpoints: Path) -> Reached | None:
    """Return where the newest checkpoint stands whose progress can be read."""
    for path in sorted(checkpoints.glob("step-*"), reverse=True):
        try:
            return msgspec.json.decode((path / "progress.json").read_bytes(), type=Reached)
        except (OSError, msgspec.DecodeError):
            continue
    return None
