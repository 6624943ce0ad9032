"""The version is the one that Python and the build see."""

import re
import tomllib
from pathlib import Path

import unmask
from unmask.support import __version__


def test_the_version_has_one_source():
    assert re.fullmatch(r"\d+\.\d+\.\d+([a-z]+\d+)?", __version__)
    assert unmask.__version__ == __version__
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "unmask.support.__version__"}
