"""Reading of pages as documents: web archives, HTML, dumps of wikis, books.

Input: a file whose content is in one of these formats (content.py), optionally compressed. Output: a `Page` for each
record: its text, or why it has none. Nothing is dropped without a word: a page that is damaged has a fault, which is
recorded as a skipped document is, and what is no text to begin with, such as images in a web archive, is counted.

Each line of a page is a paragraph: what pages break, by elements, is not a line of a paragraph that goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import NamedTuple, cast

from unmask.data.text.files import MAX_DOCUMENT, TOO_LONG


class Page(NamedTuple):
    """A record of a file of pages.

    Attributes:
        number: its number in the file, from 1.
        text: its text, with a paragraph on each line; "" if it has none.
        fault: why it cannot be read; "" if it can.
        remedy: what to do about the fault; "" if there is nothing.
        left_out: what it is, if it is no text; "" otherwise.
        url: its address; "" if that is not known.
    """

    number: int
    text: str = ""
    fault: str = ""
    remedy: str = ""
    left_out: str = ""
    url: str = ""


_READERS = {
    "warc": "unmask.data.text.web_pages:read_warc",
    "arc": "unmask.data.text.web_pages:read_arc",
    "html": "unmask.data.text.web_pages:read_html",
    "mediawiki": "unmask.data.text.wikipedia:read_dump",
    "epub": "unmask.data.text.epub:read_epub",
}
"""Reader of each of `content.PAGES`."""


def read_pages(path: str | Path, form: str) -> Iterator[Page]:
    """Read the records of a file of pages.

    Args:
        path: the file.
        form: its format, one of `content.PAGES`.

    Raises:
        UserError: it cannot be read, or needs a package that is not installed.
    """
    read = cast(Callable[[str | Path], Iterator[Page]], resolve_name(_READERS[form]))
    for page in read(path):
        yield page._replace(text="", fault=TOO_LONG) if len(page.text) > MAX_DOCUMENT else page


def as_paragraphs(text: str) -> str:
    r"""Return text in which each line that is not empty is a paragraph, separated by "\n\n"."""
    return "\n\n".join(line for line in map(str.strip, text.splitlines()) if line)
