"""What several processes do with checkpoints: the main one reads them for all, and survivors save when another is lost.

Input: the directory of a run, which only the main process reads, and only on its own host. Output: the state of the run
in all processes; checkpoints of the step before a loss. Unless they are sharded, every process has the complete weights
and moments, so that any survivor can save them: the main process as usual, or else the survivor of the lowest rank, in
RUN/checkpoints/rescued of its host, because the main process may only hang and wake up. A resumed run reads these, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor

from unmask.support.errors import UnmaskError, UserError
from unmask.support.messages import argument
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
from unmask.training.opening import MAY_CHANGE
from unmask.training.processes import Processes
from unmask.training.runs.directory import RESCUED, RunDirectory
from unmask.training.runs.display import Display


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
