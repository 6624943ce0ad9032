"""Opening of a run, after all processes have agreed on what they train.

Each process may have its own command, files, versions and machine. If they differ, the gradients of different trainings
would be summed without a sign of it. So all compare the settings of the recipe, the content of the inputs, the versions
of the libraries and the code, device and precision. Paths, numbers of threads and of workers may differ.

Weights are not compared but received from the main process (training/loop.py), as initial values drawn from the same
seed may be rounded differently by another processor.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from unmask.support.errors import UserError
from unmask.support.fingerprint import differing, environment, shown
from unmask.support.messages import argument
from unmask.support.settings import flatten
from unmask.training.calibration import BUDGETS, FITTING
from unmask.training.machine import Machine
from unmask.training.processes import Processes
from unmask.training.runs.directory import LIBRARIES, RunDirectory, saved_steps

CARD = {"card.license", "card.language"}
MAY_CHANGE = frozenset(BUDGETS | FITTING | CARD)
"""Settings that a resumed run may change: the budget may grow, the memory settings only affect rounding, and those of
the card nothing but it."""
SAME = "start all of them with the same command, files and versions"


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
