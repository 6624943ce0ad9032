"""Recorded predictions of models; intervals from as many resamples as users get."""

import json
from pathlib import Path

import pytest

from unmask.metrics import intervals
from unmask.metrics.intervals import RESAMPLES


@pytest.fixture(autouse=True)
def _all_resamples(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", RESAMPLES)


@pytest.fixture(scope="session")
def recorded():
    """Lists of [gold, predicted] by kind; the file states how they were made."""
    path = Path(__file__).resolve().parents[1] / "files" / "predictions.json"
    return json.loads(path.read_text(encoding="utf8"))
