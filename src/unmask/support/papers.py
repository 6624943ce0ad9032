"""The papers that parts of a model come from, as their own docstrings name them.

A docstring that says "Devlin et al. 2019, arXiv 1810.04805" names the paper for readers of the code and of the cards of
models alike; those without an identifier of arXiv are for readers of the code alone.
"""

from __future__ import annotations

import re
import sys
from typing import Any, NamedTuple

_PAPER = re.compile(
    r"([A-Z][\w'’-]*(?:\s+(?:and\s+)?[A-Z][\w'’-]*)*(?:\s+et\s+al\.)?\s+\d{4}),\s+arXiv\s+(\d{4}\.\d{4,5})"
)


class Paper(NamedTuple):
    """A paper.

    Attributes:
        name: authors and year, such as "Devlin et al. 2019".
        arxiv: its identifier.
    """

    name: str
    arxiv: str

    @property
    def link(self) -> str:
        """Its name in Markdown, linked as the Hub's pages recognize it."""
        return f"[{self.name}](https://arxiv.org/abs/{self.arxiv})"


def papers_of(*parts: Any) -> list[Paper]:
    """Return the papers that parts come from, each once.

    Args:
        parts: classes or functions; the docstring of a part is read, and if it names no paper, that of its module.
    """
    found = dict[Paper, None]()
    for part in parts:
        texts = part.__doc__, sys.modules[part.__module__].__doc__
        own = next((papers for text in texts if (papers := _PAPER.findall(text or ""))), [])
        found |= dict.fromkeys(Paper(" ".join(name.split()), arxiv) for name, arxiv in own)
    return list(found)
