"""Suggest the terms of the field (docs/glossary.md) for lines that use other words: `make check` prints them."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "docs", "examples")
PAGES = ("README.md", "CONTRIBUTING.md")

TERMS = {
    r"hidden (tokens?|words?|spans?)|hid(e|es|ing) (a |the |whole )?(tokens?|words?|spans?)": "masked",
    r"(?<!forward )(?<!backward )\bpasses\b(?= over| of the data)|\b(each|one) pass over": "epochs",
    r"\bby its chance\b|\ball chance\b": "probability, rng",
    r"\badd(s|ed|ing)? up\b": "sum, all_reduce",
    r"\b(take|takes|taken|taking|took) up\b": "resume",
    r"\breckon": "estimate",
    r"\b(has|have|knows?) (it|them|they) not\b": "does not have",
    r"\bheld against\b": "compared with",
    r"\blearnt\b": "learned",
    r"\bso many (tokens|steps|samples|words)\b": "the number of",
}
"""Each expression and what the field calls it."""


def suggestions(root: Path) -> list[str]:
    """Return a line for each use of another word: file, line number, the term."""
    paths = [root / page for page in PAGES]
    paths += (path for folder in FOLDERS for suffix in ("py", "md") for path in (root / folder).rglob(f"*.{suffix}"))
    lines = []
    for path in sorted(path for path in paths if path.is_file()):
        for number, text in enumerate(path.read_text(encoding="utf8").splitlines(), start=1):
            lines += (
                f"{path.relative_to(root)}:{number}: '{match[0]}': the term is {term}"
                for expression, term in TERMS.items()
                if (match := re.search(expression, text))
            )
    return lines


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in suggestions(ROOT))
