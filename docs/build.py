"""Build the site of the guide in site/: `python docs/build.py` (make docs), with the extra `docs`.

The pages are those that one reads in the repository. They are copied to build/docs, with README.md as the first page;
links to files that are no pages, such as source files, become text, as the site does not contain them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    ROOT / "README.md": "index.md",
    **{ROOT / name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md")},
    **{page: page.name for page in sorted((ROOT / "docs").glob("*.md"))},
}
"""Pages and their names on the site, where all are in one folder."""
REPORTS = sorted((ROOT / "docs").glob("*.html"))
"""Pages that commands have written, as they are."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def convert(page: Path, text: str) -> str:
    """Return the text of a page with the links of the site."""

    def link(found: re.Match[str]) -> str:
        image, words, target, anchor = found.groups()
        file = (page.parent / target).resolve()
        if file in PAGES:
            return f"[{words}]({PAGES[file]}{anchor or ''})"
        if image or file in REPORTS:
            return f"{image}[{words}]({file.name})"
        return words

    return LINK.sub(link, text)


def copy(folder: Path) -> None:
    """Write the pages and pictures of the site to a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for page, name in PAGES.items():
        (folder / name).write_text(convert(page, page.read_text(encoding="utf8")), encoding="utf8")
    for file in (*(ROOT / "docs").glob("*.png"), *REPORTS):
        shutil.copy(file, folder)


def main() -> int:
    """Build the site; any warning is an error."""
    copy(ROOT / "build" / "docs")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, end="")
    return done.returncode or int("warning" in done.stdout.lower())


if __name__ == "__main__":
    sys.exit(main())
