"""`unmask demo` runs the demonstration in the folder that it is given."""

import pytest

from .conftest import run


@pytest.mark.parametrize(("given", "expected"), [([], "demo"), (["--out", "other/folder"], "other/folder")])
def test_demo(monkeypatch, given, expected):
    folders = []
    monkeypatch.setattr("unmask.demo.demonstration.run_demo", lambda out: folders.append(out))
    assert run("demo", *given) == ("", "")
    assert folders == [expected]
