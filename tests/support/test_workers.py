"""Calls, and what the tasks of a cluster check before they work; tests with a cluster are in test_ray.py."""

import pytest

from unmask.support import workers
from unmask.support.errors import UserError
from unmask.support.fingerprint import environment


def test_tasks_of_an_array_of_slurm_are_one_call(monkeypatch):
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    assert workers.new_call() != workers.new_call()
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "4711")
    assert workers.new_call() == workers.new_call() == "4711"


def test_a_machine_that_would_compute_otherwise_is_refused(tmp_path):
    here = environment(workers.LIBRARIES)
    workers._on_node(here, str(tmp_path), "os:getcwd", [])
    for before, message in (
        (here | {"version of torch": "1.0"}, r"would not compute the same: version of torch is \S+, not 1\.0; install"),
        (here | {"version of other": "2.0"}, r"version of other is not set, not 2\.0"),
    ):
        with pytest.raises(UserError, match=message):
            workers._on_node(before, str(tmp_path), "os:getcwd", [])


def test_a_machine_that_does_not_share_the_directory_is_refused(tmp_path):
    here = environment(workers.LIBRARIES)
    with pytest.raises(UserError, match=r"missing: \S+ does not see it; choose a directory that all machines share"):
        workers._on_node(here, str(tmp_path / "missing"), "os:getcwd", [])
