"""Opening of a run by all processes, which agree on what they train; the main one reads checkpoints for all of them.

Input: the directory of a run, which only the main process reads, and only on its own host. Output: the state of the run
in all processes; checkpoints of the step before a loss. Unless they are sharded, every process has the complete weights
and moments, so that any survivor can save them: the main process as usual, or else the survivor of the lowest rank, in
RUN/checkpoints/rescued of its host, because the main process may only hang and wake up. A resumed run reads these, too.

Each process may have its own command, files, versions and machine. If they differ, the gradients of different trainings
would be summed without a sign of it. So all compare the settings of the recipe, the content of the inputs, the versions
of the libraries and the code, device and precision. Paths, numbers of threads and of workers may differ.

Weights are not compared but received from the main process (training/loop.py), as initial values drawn from the same
seed may be rounded differently by another processor.

A folder that the main process has prepared, such as a corpus, is delivered to hosts that do not share it: all processes
have the same at the same path. Where it is missing or differs, one process of those that see the same directory
receives and writes it.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import torch
from torch import Tensor

from unmask.support.durable import acquire, replaced_directory
from unmask.support.errors import UnmaskError, UserError
from unmask.support.fingerprint import differing, environment, sha256, shown
from unmask.support.messages import argument
from unmask.support.settings import flatten
from unmask.training.calibration import BUDGETS, FITTING
from unmask.training.checkpoint import (
    Progress,
    Saver,
    State,
    check_checkpoint,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
    set_newer_aside,
)
from unmask.training.machine import Machine
from unmask.training.processes import Processes
from unmask.training.runs.directory import LIBRARIES, MARK, RESCUED, RunDirectory, saved_steps
from unmask.training.runs.display import Display

CARD = {"card.license", "card.language"}
MAY_CHANGE = frozenset(BUDGETS | FITTING | CARD)
"""Settings that a resumed run may change: the budget may grow, the memory settings only affect rounding, and those of
the card nothing but it."""
SAME = "start all of them with the same command, files and versions"
CHUNK = 1 << 24
"""Number of bytes that are sent at once."""
SMALL = 1 << 20
"""Files up to this size are compared by their content, others, whose checksums are in these, by their size."""


def read_newest(
    run: RunDirectory,
    processes: Processes,
    display: Display,
    part: Callable[[str, Tensor], Tensor] | None = None,
) -> tuple[Path, State, int]:
    """Return the newest valid checkpoint, its state, and the rank of its reader; all processes must call it.

    The main process reads it, unless a survivor on a host that shares no directory with it has saved a later step.

    Args:
        run: the run.
        processes: the processes that train together.
        display: told what was skipped.
        part: maps each weight, and each tensor of the optimizer's state, to what this process has of it; None: all.

    Raises:
        UserError: there is no valid checkpoint.
    """
    path, step = run.checkpoints, -1
    if processes.is_main:
        _adopt(run.checkpoints)
        path, damaged = newest_checkpoint(run.checkpoints)
        for text in damaged:
            display.say(f"skipped {text}")
        set_newer_aside(path)
        step = _step(path)
    processes.barrier()  # what is in a shared directory has been adopted
    if not processes.is_main and (rescued := _valid(run.checkpoints / RESCUED)) and run.is_of_this_run(MAY_CHANGE):
        path, step = rescued[-1], _step(rescued[-1])
    steps = processes.gather(step)
    source = steps.index(max(steps))
    read = load_checkpoint(path) if processes.rank == source else State({}, {}, Progress(cursor=()))
    if source:
        display.say(f"process {source} has saved step {steps[source]} of the run on its own host")
    state = State(
        processes.broadcast_tensors(read.model, source, part),
        processes.broadcast_tensors(read.optimizer, source, part),
        processes.broadcast(read.progress, source),
        processes.broadcast_tensors(read.carry, source),
        processes.broadcast_tensors(read.best, source, part),
    )
    return path, state, source


def rescue(
    run: RunDirectory,
    saver: Saver,
    state: State,
    machine: Machine,
    processes: Processes,
    missing: Sequence[int],
    *,
    carries: bool,
) -> str:
    """Save a run when other processes are lost, if this process is the one to do it.

    Args:
        run: the run.
        saver: the main process's writer of checkpoints.
        state: the state after the last whole step.
        machine: machine that the run computes on.
        processes: the processes that train together.
        missing: ranks of those that are lost.
        carries: whether the lost processes alone have a part of the state: of streams, or if weights are sharded.

    Returns:
        What was saved and how to continue, in words.
    """
    step, resume = state.progress.step, f"continue with the same command and {argument('resume', True)}"
    survivors = [rank for rank in range(processes.size) if rank not in missing]
    if carries or processes.rank != survivors[0]:
        return resume
    try:
        if processes.is_main:
            saver.wait()
        else:
            run.document(machine.describe())
        folder = run.checkpoints if processes.is_main else run.checkpoints / RESCUED
        save_checkpoint(folder, state)
    except (UnmaskError, OSError) as error:
        return f"step {step} could not be saved ({error}); {resume}"
    return f"step {step} is saved; {resume}"


def _adopt(folder: Path) -> None:
    """Move valid checkpoints of other processes to those of the main one."""
    for path in _valid(folder / RESCUED):
        if not (folder / path.name).exists():
            path.rename(folder / path.name)
    shutil.rmtree(folder / RESCUED, ignore_errors=True)


def _valid(folder: Path) -> list[Path]:
    """Return the valid checkpoints in a folder, oldest first."""
    valid = []
    for path in sorted(folder.glob("step-*")):
        try:
            check_checkpoint(path)
        except UserError:
            continue
        valid.append(path)
    return valid


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def open_run(
    out: str | Path,
    recipe: str,
    inputs: Mapping[str, str],
    machine: Machine,
    processes: Processes,
    *,
    resume: bool,
) -> RunDirectory:
    """Create the directory of a run, or reopen it to resume the run; see `RunDirectory.create` and `resume`.

    The main process opens it; the others may have no access to it. All processes must call it.

    Args:
        out: the run directory.
        recipe: the recipe, as TOML.
        inputs: fingerprints of the run's inputs; a resumed run must have the same inputs and the same precision.
        machine: machine that the run computes on.
        processes: the processes that train together.
        resume: whether to resume an existing run.

    Raises:
        UserError: the directory cannot be used, its run has no checkpoint to resume from, or the processes would not
            train the same.
    """
    inputs = {**inputs, "precision": machine.precision}
    if processes.size > 1:
        contents = {f"inputs.{name}": value for name, value in inputs.items()}
        how = {"device": machine.device.type, argument("resume"): resume, **environment(LIBRARIES)}
        check_agreement(processes, {**flatten(msgspec.toml.decode(recipe)), **contents, **how})
    path = Path(out)
    if not processes.is_main:
        return RunDirectory.of_another_process(path, recipe, inputs, processes.broadcast(frozenset()))
    if not resume:
        run = RunDirectory.create(path, recipe, inputs, machine.describe())
    elif (path / "provenance.json").exists() and not RunDirectory(path).model.exists() and not any(saved_steps(path)):
        raise UserError(
            "the run ended before its first checkpoint",
            file=path,
            remedy=f"repeat its command without {argument('resume')}, which starts it again",
        )
    else:
        run = RunDirectory.resume(path, recipe, inputs, MAY_CHANGE)
    processes.broadcast(run.changed)
    return run


def check_agreement(processes: Processes, values: Mapping[str, Any]) -> None:
    """Check that all processes have the same values.

    Args:
        processes: the processes that train together; all must call it.
        values: what must be the same, by name, as texts or numbers.

    Raises:
        UserError: they differ; it names the processes, the values and those of process 0. All processes raise it.
    """
    hosts, described = zip(*processes.gather((socket.gethostname(), dict(values))), strict=True)
    ranks: dict[str, list[int]] = {}
    for rank, theirs in enumerate(described):
        if told := "; ".join(_against_first(described[0], theirs)):
            ranks.setdefault(told, []).append(rank)
    if ranks:
        every = (f"in process {_listed(numbers, hosts)} {told}" for told, numbers in ranks.items())
        raise UserError(f"the processes would not train the same: {'; '.join(every)}", remedy=SAME)


def _against_first(first: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return in which values a process differs from process 0; fingerprints are shortened."""
    return [
        f"{name} is {shown(theirs.get(name))}, in process 0 it is {shown(first.get(name))}"
        for name in differing(first, theirs)
    ]


def _listed(ranks: list[int], hosts: tuple[str, ...]) -> str:
    return f"{', '.join(map(str, ranks))} (on {hosts[ranks[0]]})"


def deliver(processes: Processes, folder: Path) -> None:
    """Give all processes a folder of the main one; all of them must call it.

    Raises:
        UserError: there is another folder of this name, which unmask has not made.
        OSError: it cannot be read or written.
    """
    if processes.size == 1:
        return
    content = processes.broadcast(_content(folder) if processes.is_main else {})
    lacks = _content(folder) != content
    if lacks and folder.exists() and not (folder / MARK).exists():
        raise UserError(
            "this folder was not made by unmask, and is not that of process 0",
            file=folder,
            remedy=f"choose another {argument('out')}",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = acquire(folder.with_name(f".{folder.name}.receiving")) if lacks else None
    try:
        if any(processes.gather(lock is not None)):
            _send(processes, folder, content, receives=lock is not None)
        processes.barrier()
    finally:
        if lock is not None:
            lock.release()
    if not all(processes.gather(_content(folder) == content)):
        raise UserError("the copies of this folder of process 0 differ", file=folder, remedy="start the run again")


def _send(processes: Processes, folder: Path, content: Mapping[str, tuple[int, str]], *, receives: bool) -> None:
    """Send the files of a folder to all processes; those that receive them write the folder."""
    with ExitStack() as stack:
        aside = stack.enter_context(replaced_directory(folder)) if receives else folder
        for name, (size, _) in content.items():
            with ExitStack() as opened:
                file: BinaryIO | None = None
                if receives:
                    (aside / name).parent.mkdir(parents=True, exist_ok=True)
                    file = opened.enter_context((aside / name).open("xb"))
                elif processes.is_main:
                    file = opened.enter_context((folder / name).open("rb"))
                for start in range(0, size, CHUNK):
                    count = min(CHUNK, size - start)
                    part = bytearray(count)
                    if processes.is_main and file is not None and file.readinto(part) != count:  # type: ignore[attr-defined]
                        raise UserError("the file was changed while it was sent", file=folder / name)
                    buffer = torch.frombuffer(part, dtype=torch.uint8)  # (count,)
                    processes.broadcast_into(buffer)
                    if receives and file is not None:
                        file.write(part)


def _content(folder: Path) -> dict[str, tuple[int, str]]:
    """Return size and, of small files, checksum of each file in a folder, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sizes = {path: path.stat().st_size for path in files}
    return {
        path.relative_to(folder).as_posix(): (size, sha256(path) if size <= SMALL else "")
        for path, size in sizes.items()
    }
