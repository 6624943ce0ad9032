"""README and docs tell the truth: the tree, the tables, the commands."""

import importlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from unmask.cli.main import parse

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = sorted(
    {
        line.split("#")[0].strip()
        for page in PAGES
        if page.name != "extending.md"  # whose commands run, beside an installed package (test_plugins.py)
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf8"), re.DOTALL)
        for line in block.splitlines()
        if line.startswith("unmask ")
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse(command):
    assert parse(shlex.split(command)[1:]).verb


def test_there_are_commands():
    assert len(COMMANDS) > 10


def test_tree():
    tree = re.search(r"```\n(src/unmask/.*?)```", (ROOT / "README.md").read_text(encoding="utf8"), re.DOTALL)[1]
    named = set(re.findall(r"(?:^  |  )([a-z_]+(?:/|\.py))", tree, re.MULTILINE))
    package = ROOT / "src" / "unmask"
    folders = {f"{path.name}/" for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.name for path in package.glob("*.py")} - {"__init__.py", "__main__.py", "version.py"}
    assert named == folders | files


def test_the_pair_that_the_docs_ask_was_answered_so():
    page = (ROOT / "docs/classification.md").read_text(encoding="utf8")
    shown = json.loads(re.search(r'^{"text":"the dog walks".*$', page, re.MULTILINE)[0])
    runs = json.loads((ROOT / "benchmarks/results/pairs.json").read_text(encoding="utf8"))["runs"]
    (asked,) = (run["asked"] for run in runs if run["set"] == "snli-2000" and run["start"] == "minilm")
    assert shown == asked | {"scores": {label: round(chance, 3) for label, chance in asked["scores"].items()}}
    assert shown["label"] == "contradiction"


def test_tables_are_what_was_measured():
    check = subprocess.run(
        [sys.executable, "benchmarks/tables.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stderr


def test_links():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_commands_that_differ_in_one_list_are_one():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        joined = importlib.import_module("tables").joined
    finally:
        sys.path.pop(0)
    calls = ["x.py --seeds 0 --sets a-1", "x.py --seeds 0 --sets b", "x.py --seeds 1 2 --sets b", "x.py --seeds 3"]
    assert joined(calls) == "`x.py --seeds 0 --sets a-1 b`, `x.py --seeds 1 2 --sets b`, `x.py --seeds 3`"
    assert joined([*calls[:2], "x.py --seeds 1 --sets a-1 b", "x.py"]) == "`x.py --seeds 0 1 --sets a-1 b`, `x.py`"
