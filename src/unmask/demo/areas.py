"""Labeled English text that exists wherever unmask is installed: what docstrings say, by the area of their package.

Input: nothing, or the folders of the areas. Output: texts of one or more paragraphs, each with its area as label, as a
help desk gets questions and passes them on to the right team. The same installation always yields the same texts.
"""

from __future__ import annotations

import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from unmask.demo.documentation import prose, read_docstrings

AREAS = {
    "algebra": "sympy",
    "graphs": "networkx",
    "learning": "torch/nn torch/optim torch/distributions torch/utils/data torch/functional.py torch/_torch_docs.py",
    "network": "asyncio ftplib.py http imaplib.py poplib.py selectors.py smtplib.py socket.py socketserver.py ssl.py "
    "urllib wsgiref xmlrpc",
    "windows": "idlelib tkinter turtle.py",
}
"""Files and folders of the standard library, and of packages that PyTorch installs, by area."""
PACKAGES = "networkx sympy torch numpy rich pip setuptools fsspec jinja2 mpmath"
"""Packages whose documentation is read beside that of the standard library."""
WORDS = range(20, 121)
"""Numbers of words of the texts that are used."""
LONGEST = 80
"""Words after which no further paragraph is added to a text."""
FEWEST = 200
"""Number of texts below which an area is left out, such as windows where Python is installed without tkinter."""
_LEFT_OUT = {"tests", "test", "_vendor", "idle_test"}


class Labelled(NamedTuple):
    """The paragraphs of a text, and its area."""

    paragraphs: tuple[str, ...]
    label: str

    @property
    def text(self) -> str:
        """The text on one line."""
        return " ".join(self.paragraphs)


def folders() -> list[Path]:
    """Return the folders whose documentation is read: the standard library and the installed ones of `PACKAGES`."""
    paths = sysconfig.get_paths()
    packages = [Path(paths[root]) / name for name in PACKAGES.split() for root in ("purelib", "platlib")]
    return [Path(paths["stdlib"]), *(path for path in dict.fromkeys(packages) if path.is_dir())]


def texts_by_area(areas: Mapping[str, str] = AREAS, roots: Sequence[Path] | None = None) -> dict[str, list[Labelled]]:
    """Return the texts of each area, in a seeded order; those of two areas, and areas of few texts, are left out.

    Args:
        areas: files and folders of each area, separated by spaces.
        roots: where they are; None: the standard library and the installed packages.
    """
    paths = sysconfig.get_paths()
    where = [Path(paths[name]) for name in ("stdlib", "purelib", "platlib")] if roots is None else roots
    candidates = {
        area: list(dict.fromkeys(Labelled(text, area) for text in _texts(where, names.split())))
        for area, names in areas.items()
    }
    count = Counter(example.text for examples in candidates.values() for example in examples)
    unique = {
        area: sorted((example for example in examples if count[example.text] == 1), key=_hash)
        for area, examples in candidates.items()
    }
    return {area: examples for area, examples in unique.items() if len(examples) >= FEWEST}


def write_tsv(path: Path, examples: Sequence[Labelled]) -> Path:
    """Write examples as a labeled file; return its path."""
    lines = [f"{example.text}\t{example.label}\n" for example in examples]
    path.write_text("text\tlabel\n" + "".join(lines), encoding="utf8")
    return path


def _texts(roots: Sequence[Path], names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for name in names:
        for root in dict.fromkeys(roots):
            for path in [root / name] if name.endswith(".py") else sorted((root / name).rglob("*.py")):
                if path.is_file() and not _LEFT_OUT.intersection(path.relative_to(root).parts):
                    yield from filter(None, map(_beginning, read_docstrings(path)))


def _beginning(docstring: str) -> tuple[str, ...]:
    """Return the first paragraphs of a docstring; none if they are too short or too long."""
    paragraphs: list[str] = []
    words = 0
    for paragraph in prose(docstring):
        number = len(paragraph.split())
        if "\t" in paragraph or (paragraphs and words + number > LONGEST):
            break
        paragraphs.append(paragraph)
        words += number
    return tuple(paragraphs) if words in WORDS else ()


def _hash(example: Labelled) -> bytes:
    return blake2b(example.text.encode("utf-8", "replace"), digest_size=8).digest()
