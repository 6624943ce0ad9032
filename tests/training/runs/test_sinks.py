"""Metrics go to the trackers that packages add; one that fails is dropped, and the run goes on."""

from importlib.metadata import EntryPoint

import pytest

from unmask.support import plugins
from unmask.training.runs.directory import RunDirectory
from unmask.training.runs.extras import GROUP, Sinks

LINES = [{"kind": "train", "step": 1, "loss": 2.0}, {"kind": "heldout", "step": 1, "accuracy": 50.0}]


class Tracker:
    """A tracker that records what it gets, and may fail."""

    def __init__(self, run, fails=""):
        self.run, self.fails, self.got = run, fails, []

    def write(self, metrics):
        if self.fails == "write":
            raise OSError("no network")
        self.got.append(metrics)

    def close(self):
        if self.fails == "close":
            raise ValueError("late")
        self.got.append("closed")


TRACKERS = []


def opened(run):
    TRACKERS.append(Tracker(run))
    return TRACKERS[-1]


def declined(run):
    return None


def broken(run):
    raise ValueError("no account")


def failing(run):
    TRACKERS.append(Tracker(run, fails="write"))
    return TRACKERS[-1]


@pytest.fixture
def install(monkeypatch):
    """Install entry points to functions of this file."""
    monkeypatch.setattr("unmask.training.runs.extras.event_writer", lambda: None)
    TRACKERS.clear()

    def add(*functions):
        points = [EntryPoint(function.__name__, f"m:{function.__name__}", GROUP) for function in functions]
        monkeypatch.setattr(EntryPoint, "load", lambda point: globals()[point.name])
        monkeypatch.setattr(plugins, "installed", lambda group: points if group == GROUP else [])

    return add


def test_a_tracker_gets_every_line_of_a_run(install, tmp_path):
    install(opened, declined)
    with RunDirectory.create(tmp_path / "run", "", {}, {}) as run:
        for line in LINES:
            run.log(line)
    (tracker,) = TRACKERS
    assert tracker.run == tmp_path / "run"
    assert tracker.got == [*LINES, "closed"]
    assert not (tmp_path / "run" / "events").exists()


def test_a_tracker_that_fails_is_dropped_with_one_warning(install, tmp_path):
    install(failing, broken, opened)
    sinks = Sinks(tmp_path)
    with pytest.warns(UserWarning) as caught:
        sinks.write(LINES[0])
    assert sorted(str(one.message) for one in caught) == [
        "the metrics sink 'broken' failed and gets no more metrics (ValueError: no account)",
        "the metrics sink 'failing' failed and gets no more metrics (OSError: no network)",
    ]
    sinks.write(LINES[1])
    sinks.close()
    assert [tracker.got for tracker in TRACKERS if not tracker.fails] == [[*LINES, "closed"]]


def test_a_run_that_is_resumed_opens_its_trackers_again(install, tmp_path):
    install(opened)
    sinks = Sinks(tmp_path)
    for line in LINES:
        sinks.write(line)
        sinks.close()
    assert [tracker.got for tracker in TRACKERS] == [[LINES[0], "closed"], [LINES[1], "closed"]]


def test_events_that_cannot_be_written_end_no_run(events, monkeypatch, tmp_path):
    class Full:
        def __init__(self, folder, purge_step):
            pass

        def add_scalar(self, *_):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("unmask.training.runs.extras.event_writer", lambda: Full)
    with (
        RunDirectory.create(tmp_path / "run", "", {}, {}) as run,
        pytest.warns(UserWarning, match=r"'TensorBoard' failed .*No space left on device"),
    ):
        for line in LINES:
            run.log(line)
        assert run.read_metrics("train") == LINES[:1]
