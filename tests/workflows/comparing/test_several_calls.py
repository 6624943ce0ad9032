"""Several calls of a comparison at the same time, such as the tasks of an array of Slurm."""

import threading
from contextlib import suppress

import pytest

from unmask.support import durable
from unmask.training.machine import choose_machine
from unmask.workflows.comparing import compute, work
from unmask.workflows.comparing.cells import failure_of, folder_of
from unmask.workflows.comparing.outcome import Outcome
from unmask.workflows.comparing.planner import Planner
from unmask.workflows.comparing.report import write_report
from unmask.workflows.comparing.settings import read_comparison

from .test_report import faked

MACHINE = choose_machine("cpu", "float32")


@pytest.fixture
def plan(inputs):
    comparison = read_comparison(inputs / "pets.toml")
    return Planner(comparison, comparison.named_arms(), "float32").plan()


@pytest.mark.parametrize("what", ["plan", "report"])
def test_what_all_write_is_the_work_of_one(plan, tmp_path, monkeypatch, what):
    """Without a lock, both would have written their temporary files when they meet, and one replaced by the other."""
    sync, meeting, errors = durable.sync, threading.Barrier(2), []

    def meet(path):
        with suppress(threading.BrokenBarrierError):
            meeting.wait(timeout=0.2)
        sync(path)

    def write():
        try:
            if what == "plan":
                work.write_plan(plan.comparison, tmp_path)
            else:
                write_report(Outcome(), tmp_path)
        except OSError as error:
            errors.append(error)

    monkeypatch.setattr(durable, "sync", meet)
    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert errors == []
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_what_failed_in_a_call_is_not_tried_again_by_it_after_another_call_has(plan, tmp_path, monkeypatch):
    """Otherwise two calls would compute what fails in turns, for as long as there is other work."""
    tried = []

    def fail(cell, *arguments):
        tried.append(cell.key)
        raise RuntimeError("a broken disk")

    faked(plan, tmp_path, lambda cell: 0.7)
    (cell, *_) = plan.of("overlap")
    monkeypatch.setattr(compute, "COMPUTE", dict.fromkeys(compute.COMPUTE, fail))
    for attempt in ("one", "another", "one", "another"):
        work.work(plan, tmp_path, MACHINE, attempt=attempt, quiet=True, measures=False)
        assert "a broken disk" in failure_of(tmp_path, cell, attempt).error
    assert tried.count(cell.key) == 2


def test_what_others_have_ended_since_a_look_is_not_computed(plan, tmp_path, monkeypatch):
    """Between the look at a cell and its lock, another process of the same call may have tried it in vain."""
    faked(plan, tmp_path, lambda cell: 0.7)
    (cell, *_) = plan.of("overlap")
    taken, planted = work.taken, {"overlap": lambda *arguments: pytest.fail("it is computed again")}

    def late(folder):
        if folder == folder_of(tmp_path, cell):
            folder.mkdir(parents=True, exist_ok=True)
            work._fail(folder, "this", "a broken disk")
        return taken(folder)

    monkeypatch.setattr(work, "taken", late)
    monkeypatch.setattr(compute, "COMPUTE", planted)
    work.work(plan, tmp_path, MACHINE, attempt="this", quiet=True, measures=False)
    assert failure_of(tmp_path, cell, "this").error == "a broken disk"
