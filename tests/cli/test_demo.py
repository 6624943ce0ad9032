"""`unmask demo` runs the demonstration in the folder that it is given."""

from pathlib import Path

import pytest

from .conftest import run


@pytest.mark.parametrize(("given", "expected"), [([], "demo"), (["--out", "other/folder"], "other/folder")])
def test_demo(monkeypatch, given, expected):
    folders = []
    monkeypatch.setattr("unmask.demo.demonstration.run", folders.append)
    assert run("demo", *given) == ("", "")
    assert folders == [Path(expected)]
