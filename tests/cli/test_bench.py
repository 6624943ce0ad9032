"""`unmask bench` as a user types it."""

import json

from unmask.inference import bench

from .conftest import run


def test_a_table_and_a_recommendation(small, monkeypatch):
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    lines = run("bench", small / "model", "--sentences", 4).out.splitlines()
    assert lines[0].split()[:2] == ["engine", "sentences/s"]
    assert lines[1].startswith("torch float32") and lines[-1].startswith("recommended: torch in ")
    found = json.loads(run("bench", small / "model", "--sentences", 4, "--json").out)
    assert found["rows"][0]["backend"] == "torch"
