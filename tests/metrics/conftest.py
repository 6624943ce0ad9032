"""Recorded predictions of models."""

import json
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def recorded():
    """Lists of [gold, predicted] by kind; the file states how they were made."""
    path = Path(__file__).resolve().parents[1] / "files" / "predictions.json"
    return json.loads(path.read_text(encoding="utf8"))
