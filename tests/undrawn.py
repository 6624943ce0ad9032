"""Runs without plots, which take longer than the steps of a small run; tests of plots ask for the fixture `drawn`."""

from contextlib import contextmanager

import pytest

from unmask.training.runs import plots
from unmask.workflows.finetuning import run_job
from unmask.workflows.pretraining import pretrain


@contextmanager
def drawing_by(draw):
    """Draw the plots of runs in this process by a function; `unmask runs plot` is unaffected."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (pretrain, run_job):
            patch.setattr(module, "try_to_draw", draw)
        yield


@pytest.fixture(scope="session", autouse=True)
def _undrawn():
    """Runs draw nothing."""
    with drawing_by(lambda draw, say: None):
        yield


@pytest.fixture
def drawn():
    """Runs draw their plots, as they do outside of tests."""
    with drawing_by(plots.try_to_draw):
        yield
