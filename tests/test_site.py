"""The site has all pages of the guide in its navigation, links only to pages that it has, and all public names."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import unmask

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def build():
    """The module docs/build.py."""
    spec = importlib.util.spec_from_file_location("build", ROOT / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def named(entries):
    """Return the pages in a navigation."""
    for entry in entries:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else named(value)


def test_the_navigation_has_every_page_once(build):
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf8"))["project"]
    assert sorted(named(site["nav"])) == sorted(build.PAGES.values())
    assert ROOT / site["docs_dir"] == ROOT / "build" / "docs"


def test_links_of_the_site_lead_to_its_files(build, tmp_path):
    build.copy(tmp_path / "site")
    pages = {page.name: page.read_text(encoding="utf8") for page in (tmp_path / "site").glob("*.md")}
    assert pages.keys() == set(build.PAGES.values())
    count = 0
    for name, text in pages.items():
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", prose):
            assert (tmp_path / "site" / target).is_file(), f"{name}: {target}"
            count += 1
    assert count > 50


def test_links_to_source_files_become_text(build):
    page = ROOT / "docs" / "text.md"
    text = (
        "[a](../src/unmask/model/model.py), [`b`](family.md#x), ![c](readme.png), [d](../README.md), [e](https://x.y/z)"
    )
    expected = "a, [`b`](family.md#x), ![c](readme.png), [d](index.md), [e](https://x.y/z)"
    assert build.convert(page, text) == expected


def test_every_public_name_is_in_the_reference():
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf8")
    listed = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)$", page, re.MULTILINE)}
    assert listed == set(unmask.__all__) - {"__version__"}
