"""`unmask doctor`: for people, and for programs."""

import json

from unmask.support import __version__

from .conftest import run


def test_facts_are_printed_under_headings():
    lines = run("doctor").out.splitlines()
    assert [line for line in lines if not line.startswith("  ")][:2] == ["system", "processor"]
    assert lines[1].split() == ["unmask", __version__]


def test_the_same_as_json():
    report = json.loads(run("doctor", "--json").out)
    assert report["system"]["unmask"] == __version__
    assert report["choices"]["training by default"].startswith(("cpu", "cuda"))
