"""README and docs tell the truth: the tree, the tables, the commands."""

import json
import re
import shlex
from pathlib import Path

import pytest

from unmask.cli.main import parse

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "tests" / "README.md"]
COMMANDS = sorted(
    {
        line.split("#")[0].split(" > ")[0].strip()
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
    named = set(re.findall(r"^  ([a-z_]+(?:/|\.py)) ", tree, re.MULTILINE))
    package = ROOT / "src" / "unmask"
    folders = {f"{path.name}/" for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.name for path in package.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert named == folders | files


def test_the_pair_that_the_docs_ask_was_answered_so():
    page = (ROOT / "docs/classification.md").read_text(encoding="utf8")
    shown = json.loads(re.search(r'^{"text":"the dog walks".*$', page, re.MULTILINE)[0])
    runs = json.loads((ROOT / "benchmarks/results/pairs.json").read_text(encoding="utf8"))["runs"]
    (asked,) = (run["asked"] for run in runs if run["set"] == "snli-2000" and run["start"] == "minilm")
    assert shown == asked | {"scores": {label: round(chance, 3) for label, chance in asked["scores"].items()}}
    assert shown["label"] == "contradiction"


def test_the_readme_is_short_and_nothing_is_left_open():
    assert len((ROOT / "README.md").read_text(encoding="utf8").splitlines()) <= 130
    for page in PAGES:
        text = page.read_text(encoding="utf8")
        assert not re.search("not measured yet|suspended on the way|@@", text), page.name


def test_every_page_can_be_reached_from_the_readme():
    reached, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached:
            reached.add(page)
            targets = re.findall(r"\]\((?!https?:)([^)#]+\.md)", page.read_text(encoding="utf8"))
            ahead += [(page.parent / target).resolve() for target in targets]
    assert set(LINKED) <= reached


def test_links_to_sections_have_a_heading():
    for page in LINKED:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text(encoding="utf8")):
            text = ((page.parent / target) if target else page).read_text(encoding="utf8")
            headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name}: {target}#{anchor}"


def test_links():
    for page in LINKED:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_ids_of_faults_in_names_of_tests_are_explained():
    sources = [path.read_text(encoding="utf8") for path in (ROOT / "tests").rglob("test_*.py")]
    names = [name for source in sources for name in re.findall(r"def (test_\w+)", source)]
    used = {fault for name in names for fault in re.findall(r"_([TDCSPE]\d+)(?=_)", name)}
    explained = re.findall(r"^\| ([A-Z]\d+) \|", (ROOT / "tests/README.md").read_text(encoding="utf8"), re.MULTILINE)
    assert sorted(explained) == sorted(used)
