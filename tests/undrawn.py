"""Runs without plots and events of TensorBoard, which take longer than the steps of a small run.

Tests of them ask for the fixture `drawn`.
"""

from contextlib import contextmanager

import pytest

from unmask.training.runs import plots
from unmask.training.runs.extras import Events
from unmask.workflows.finetuning import run_job
from unmask.workflows.pretraining import pretrain

WRITE = Events.write


@contextmanager
def drawing_by(draw, write=WRITE):
    """Draw the plots of runs in this process, and write their events, by functions; `runs plot` is unaffected."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Events, "write", write)
        for module in (pretrain, run_job):
            patch.setattr(module, "try_to_draw", draw)
        yield


@pytest.fixture(scope="session", autouse=True)
def _undrawn():
    """Runs draw nothing and write no events."""
    with drawing_by(lambda draw, say: None, lambda events, metrics: None):
        yield


@pytest.fixture
def drawn():
    """Runs draw their plots and write their events, as they do outside of tests."""
    with drawing_by(plots.try_to_draw):
        yield
