"""Runs without plots, which take longer than the steps of a small run; tests of plots ask for the fixture `drawn`.

The `conftest.py` of a directory whose tests train imports both fixtures.
"""

import pytest

from unmask.training.runs import plots
from unmask.workflows.finetuning import run_job
from unmask.workflows.pretraining import pretrain


@pytest.fixture(scope="module", autouse=True)
def _undrawn():
    """Runs in this process draw nothing; whatever else draws, such as `unmask runs plot`, does."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (pretrain, run_job):
            patch.setattr(module, "try_to_draw", lambda draw, say: None)
        yield


@pytest.fixture
def drawn(monkeypatch):
    """Runs draw their plots, as they do outside of tests."""
    for module in (pretrain, run_job):
        monkeypatch.setattr(module, "try_to_draw", plots.try_to_draw)
