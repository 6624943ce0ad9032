"""Runs without events of TensorBoard, whose import takes longer than the steps of a small run.

Tests of them ask for the fixture `events`.
"""

from contextlib import contextmanager

import pytest

from unmask.training.runs.extras import Events

WRITE = Events.write


@contextmanager
def written_by(write=WRITE):
    """Write the events of runs in this process by a function."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Events, "write", write)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_events():
    """Runs write no events."""
    with written_by(lambda events, metrics: None):
        yield


@pytest.fixture
def events():
    """Runs write their events, as they do outside of tests."""
    with written_by():
        yield
