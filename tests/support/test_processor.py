"""How many cores other programs occupy, by the system's statistics."""

import os
import subprocess
import sys
import time

import pytest

from unmask.support import environment as processor
from unmask.support.environment import Times, busy_cores, num_cores, read_times

STATISTICS = """cpu  100 0 0 0 0 0 0 0 0 0
cpu0 10 20 30 1000 2000 1 2 3 50 60
cpu1 1 1 1 1 1 1 1 1 1 1
cpu10 4 0 0 0 0 0 0 0 0 0
intr 5
"""


def test_cores_are_those_that_the_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 3}, raising=False)
    assert num_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert num_cores() == 7


def test_work_is_counted_on_the_cores_that_the_process_may_use(monkeypatch, tmp_path):
    (tmp_path / "stat").write_text(STATISTICS)
    monkeypatch.setattr(processor, "STATISTICS", tmp_path / "stat")
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_CLK_TCK": 100}[name])
    for cores, ticks in (({0}, 66), ({0, 10}, 70)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process, cores=cores: cores, raising=False)
        assert read_times().cores == ticks / 100


def test_others_are_what_this_process_does_not_use():
    before = Times(100.0, 50.0, 2.0)
    assert busy_cores(before, Times(102.0, 53.5, 4.5)) == pytest.approx(0.5)
    assert busy_cores(before, Times(102.0, 52.0, 4.5)) == 0, "the system counts in ticks"
    assert busy_cores(before, before) == busy_cores(None, before) == busy_cores(before, None) == 0


def test_systems_without_statistics_are_taken_to_be_idle(monkeypatch, tmp_path):
    monkeypatch.setattr(processor, "STATISTICS", tmp_path / "none")
    assert read_times() is None
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert read_times() is None


@pytest.mark.skipif(read_times() is None, reason="only Linux tells how busy its cores are")
def test_another_program_is_noticed():
    program = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"
    before = read_times()
    other = subprocess.Popen([sys.executable, "-c", program])
    try:
        time.sleep(1)
        assert busy_cores(before, read_times()) > 0.2  # other tests may run on the same core
    finally:
        other.kill()
        other.wait()
