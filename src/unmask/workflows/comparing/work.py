"""Computes the cells of a comparison: one after the other, in processes of this machine, or on a cluster.

All who work on a comparison share its directory and run the same loop: take the first cell whose needs are met and that
nobody computes (a file lock says so), compute it, write its result, and look again. Who is killed loses its lock, and
another one continues its cell. Therefore the same command may be started several times, on any machines that share the
directory.

    OUT/comparison.toml           what is compared, with all paths
    OUT/cells/KEY/cell.json       what a cell is, and what its key is made of
    OUT/cells/KEY/result.json     its result, written last
    OUT/cells/KEY/failed.json     or why there is none
    OUT/cells/KEY/usage.json      what was used of the machine, unless its process was killed
"""

from __future__ import annotations

import shlex
import shutil
import time
import traceback
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from unmask.data.labelled.table import Source
from unmask.data.text.files import COMPRESSED
from unmask.families.body import BodySettings
from unmask.families.checkpoints.check import on_meta
from unmask.model.directory import find
from unmask.support.choices import exists
from unmask.support.durable import full_disk, only_writer, replace_file
from unmask.support.errors import ShareNote, UserError
from unmask.support.messages import flags
from unmask.support.settings import write
from unmask.support.urls import address_of
from unmask.support.workers import ATTEMPTS, PAUSE, taken
from unmask.training.interrupt import Interrupted
from unmask.training.machine import Machine, choose_machine
from unmask.training.runs.display import Display, duration
from unmask.training.runs.usage import FILE as USAGE
from unmask.training.runs.usage import UsageLog
from unmask.workflows.comparing.cells import (
    ABOUT,
    FAILED,
    NEEDED,
    Cell,
    Contents,
    Failure,
    Plan,
    about,
    failure_of,
    folder_of,
    read_failure,
    result_of,
    write_result,
)
from unmask.workflows.comparing.planner import Planner
from unmask.workflows.comparing.scores import Held, race
from unmask.workflows.comparing.settings import Comparison, read_budget, read_comparison
from unmask.workflows.pretraining.search import cost, training_speed

COMPARISON = "comparison.toml"
JOIN = "unmask.workflows.comparing.work:join"
"""What other processes call."""
GUESS = {
    "look": 15.0,
    "familiarity": 15.0,
    "overlap": 5.0,
    "heldout": 5.0,
    "speed": 1.0,
    "corpus": 20.0,
    "bits": 20.0,
    "rate": 120.0,
    "score": 60.0,
    "cost": 30.0,
}
"""Seconds that a cell is expected to take before one of its kind has been computed."""
PACKED = 4
"""Size of a text, compared with that of its compressed file, about."""


def work(
    plan: Plan, out: Path, machine: Machine, *, attempt: str, quiet: bool, workers: int = 1, measures: bool = True
) -> None:
    """Compute all cells that nobody else computes, until each has a result or has failed.

    Args:
        plan: the cells.
        out: the directory of the comparison.
        machine: device and precision.
        attempt: identifies the call of a user: what failed in another one is tried again.
        quiet: print nothing.
        workers: number of processes that share the work, for the time left.
        measures: also compute the cells that measure speed.
    """
    display, done = Display(quiet=quiet), set[str]()
    while True:
        waiting, computed = False, False
        held = race(plan, out) if plan.comparison.race else Held()
        for number, cell in enumerate(plan.cells, 1):
            if cell.kind == "cost" and (waiting or not measures):  # nothing else may run then: these cells are last
                break
            state = _state(out, cell, attempt, done)
            if cell.key in held.stopped or state in ("done", "failed"):
                continue
            if state == "waiting" or (state == "ready" and cell.key in held.waiting):
                waiting = True
                continue
            with taken(folder_of(out, cell)) as mine:
                state = _state(out, cell, attempt, done) if mine else "waiting"  # others may have ended it meanwhile
                waiting = waiting or state == "waiting"
                computed = state in ("ready", "broken")
                if state == "broken":
                    _fail(folder_of(out, cell), attempt, _broken(out, cell, attempt))
                elif state == "ready":
                    left = duration(_seconds_left(plan, out, attempt, done) / workers)
                    display.say(f"[{number}/{len(plan.cells)}] {cell.name}; about {left} left")
                    _compute(cell, out, machine, attempt, plan.contents)
            if computed:
                break
        if not computed:
            if not waiting:
                return
            time.sleep(PAUSE)


def _state(out: Path, cell: Cell, attempt: str, done: set[str]) -> str:
    """Return "done", "failed", "broken" (a cell it needs has failed), "waiting" (for one that it needs) or "ready".

    Keys of cells that are done are added to `done`: their results are read once, not in each look for work.
    """
    if cell.key in done:
        return "done"
    if result_of(out, cell) is not None:
        done.add(cell.key)
        return "done"
    if failure_of(out, cell, attempt):
        return "failed"
    states = [_state(out, needed, attempt, done) for needed in cell.needs.values()]
    if "failed" in states:
        return "broken"
    return "ready" if all(state == "done" for state in states) else "waiting"


def _broken(out: Path, cell: Cell, attempt: str) -> str:
    """Return why a cell fails that needs one which has failed."""
    reasons = ((needed.name, failure_of(out, needed, attempt)) for needed in cell.needs.values())
    name, cause = next(((name, reason.error) for name, reason in reasons if reason), ("", ""))
    return cause if cause.startswith(NEEDED) else f"{NEEDED} {name}: {cause}"


def _compute(cell: Cell, out: Path, machine: Machine, attempt: str, contents: Contents) -> None:
    """Compute a cell in its locked folder, and write its result or why there is none.

    Raises:
        Interrupted: a signal ended the work; the cell is continued later.
    """
    folder = folder_of(out, cell)
    begun = about(folder)
    attempts = 1 + (begun.attempts if begun.attempt == attempt else 0)
    needed = {name: folder_of(out, other) for name, other in cell.needs.items()}
    described = {
        "name": cell.name,
        "kind": cell.kind,
        "inputs": cell.inputs,
        "needs": {name: other.key for name, other in cell.needs.items()},
        "attempt": attempt,
        "attempts": attempts,
    }
    replace_file(folder / ABOUT, msgspec.json.format(msgspec.json.encode(described)))
    if attempts > ATTEMPTS:
        _fail(folder, attempt, f"its process ended without a word {ATTEMPTS} times; is there enough memory?")
        return
    from unmask.workflows.comparing.compute import COMPUTE, tidy  # all that trains

    start, usage = time.monotonic(), UsageLog(folder / USAGE)
    usage.gpus = int(machine.device.type != "cpu")
    try:
        result = COMPUTE[cell.kind](cell, folder, needed, machine)
        check_unchanged(cell, folder, contents)
    except (Interrupted, KeyboardInterrupt):
        raise
    except Exception as error:
        if full := full_disk(error):  # no cell can be computed
            raise full from None
        trace = "" if isinstance(error, UserError) else traceback.format_exc()
        _fail(folder, attempt, str(error) or type(error).__name__, trace)
        return
    finally:
        usage.save()
    elapsed = time.monotonic() - start
    write_result(folder, cell, {**result, "elapsed": elapsed, "machine": machine.describe()})
    tidy(cell, folder)


def check_unchanged(cell: Cell, folder: Path, contents: Contents) -> None:
    """Check that what a cell has read is what its key says; URLs are not read again.

    Args:
        cell: the cell, which has been computed.
        folder: its folder, whose directories are removed if not: they are made of other contents.
        contents: the fingerprints of its plan.

    Raises:
        UserError: a file or a model has changed.
    """
    files = list(_files_of(cell))
    models = [(cell.paths.get(name), cell.inputs.get(name)) for name in ("model", "tokenizer")]
    known = [(model, planned) for model, planned in models if model and planned is not None]
    contents.forget_changed([*(str(path) for path, _ in files), *(model for model, _ in known)])
    changed = [path for path, planned in files if contents.of_files(cell.name, [path]) != [planned]]
    changed += [model for model, planned in known if contents.of_model(model) != planned]
    if changed:
        for made in folder.iterdir():
            if made.is_dir():
                shutil.rmtree(made)
        raise UserError(
            "has changed since the comparison began, so that this result would not be of what the others are",
            file=str(changed[0]),
            remedy="repeat the command, with the file as it was or with all that depends on it computed again",
        )


def _files_of(cell: Cell) -> Iterator[tuple[Source, str]]:
    """Yield the files that a cell reads with the fingerprints of its key, but for URLs."""
    files, planned = cell.paths.get("files"), cell.inputs.get("files", {})
    parts = [(cell.paths.get(name, ()), cell.inputs.get(name, ())) for name in ("text", "unlabelled")]
    if files is not None:
        by_role = planned if isinstance(planned, Mapping) else {"train": planned}  # a first look reads these alone
        parts += [(getattr(files, part), by_role.get(role, ())) for part, role in (("train", "train"), ("dev", "test"))]
    for paths, fingerprints in parts:
        for path, fingerprint in zip(paths, fingerprints, strict=False):
            if not address_of(path):
                yield path, fingerprint


def _fail(folder: Path, attempt: str, error: str, trace: str = "") -> None:
    """Write why a cell, whose folder is locked, has no result; calls in which it failed before keep that it did."""
    before = read_failure(folder)
    attempts = [*(before.attempts if before else ()), attempt]
    replace_file(folder / FAILED, msgspec.json.encode(Failure(error, trace, attempts)))


def seconds_taken(plan: Plan, out: Path) -> dict[str, float]:
    """Return how long the finished cells took, the median by kind."""
    taken: dict[str, list[float]] = {}
    for cell in plan.cells:
        if result := result_of(out, cell):
            taken.setdefault(cell.kind, []).append(result["elapsed"])
    return {kind: median(seconds) for kind, seconds in taken.items()}


def expected_seconds(plan: Plan, cell: Cell, taken: Mapping[str, float]) -> float:
    """Return how long a cell is expected to take: as those of its kind took, or as the budget says."""
    share = cell.share if cell.kind == "pretraining" else 1.0
    if cell.kind == "pretraining" and (budget := read_budget(plan.comparison.budget)).unit == "minutes":
        return 60 * budget.amount * share
    if cell.kind in taken:
        return taken[cell.kind] * share
    if cell.kind == "pretraining":
        return cost(cell.paths["recipe"], cell.paths["vocabulary"]).seconds(_speed())
    return GUESS[cell.kind]


def bytes_kept(cell: Cell) -> float:
    """Return about how much of the disk a finished cell takes."""
    if cell.kind == "corpus":  # token ids and a sample take about as much as the text
        files = [Path(file) for file in cell.paths["text"] if exists(Path(file))]
        return sum(file.stat().st_size * (PACKED if file.suffix in COMPRESSED else 1) for file in files)
    return weights_bytes(cell) if cell.keeps else 0


def weights_bytes(cell: Cell) -> float:
    """Return the size of the weights, in float32, of the model that a cell trains."""
    paths = cell.paths
    if "shape" in paths:
        return 4 * _parameters(paths["shape"], paths["vocabulary"])
    if "model" in cell.needs:
        return weights_bytes(cell.needs["model"])
    files = [file for file in find(paths["model"]).iterdir() if file.suffix in (".safetensors", ".bin")]
    return max((file.stat().st_size for file in files), default=0)


@cache
def _parameters(shape: BodySettings, vocabulary: int) -> int:
    """Return the number of parameters of an encoder, which is built without memory for them."""
    with on_meta():
        return sum(value.numel() for value in shape.build(vocabulary).parameters())


@cache
def _speed() -> float:
    return training_speed(choose_machine())


def _seconds_left(plan: Plan, out: Path, attempt: str, done: set[str]) -> float:
    left = [cell for cell in plan.cells if _state(out, cell, attempt, done) in ("ready", "waiting")]
    taken = seconds_taken(plan, out)
    return sum(expected_seconds(plan, cell, taken) for cell in left)


def progress_of(plan: Plan, out: Path, attempt: str, workers: int) -> str:
    """Return how far a comparison is on which other processes work."""
    done = set[str]()
    left = duration(_seconds_left(plan, out, attempt, done) / workers)
    return f"{ShareNote(len(done), len(plan.cells), 'cells are done')}; about {left} left"


def write_plan(comparison: Comparison, out: Path) -> None:
    """Write what is compared, for other processes."""
    with only_writer(out / COMPARISON, wait=True):  # the tasks of an array begin at the same time
        replace_file(out / COMPARISON, write(comparison).encode())


def join(out: str, device: Any, precision: Any, attempt: str) -> None:
    """Work on a comparison whose plan is in its directory; what another process runs.

    It measures no speed: it has fewer threads than the process that started it, or is on another machine.
    """
    comparison = read_comparison(Path(out) / COMPARISON)
    machine = choose_machine(device, precision)
    plan = Planner(comparison, comparison.named_arms(), machine.precision).plan()
    work(plan, Path(out), machine, attempt=attempt, quiet=True, measures=False)


def array_script(out: Path, workers: int, options: Mapping[str, Any]) -> str:
    """Return a batch script for Slurm, whose tasks divide the cells between them.

    Args:
        out: the directory of the comparison, with its plan.
        workers: number of tasks.
        options: further parameters of each call, but for those at their defaults.
    """
    template = resources.files("unmask.workflows.comparing") / "page" / "array.sh"
    out = out.resolve()
    given = {"out": out, **options}
    named = [word for name, value in given.items() if value and value != "auto" for word in flags(name, value)]
    command = shlex.join(["unmask", "compare", str(out / COMPARISON), *named])
    return template.read_text(encoding="utf8").format(workers=workers, command=command)
