"""Labeled texts of several benchmarks: SST-2, and English text that exists on every machine with Python.

The latter are paragraphs of the docstrings of a standard library, each with the topic of its module as label; the same
for the same version of Python. They go with the text of `unmask.demo.documentation`, from which the test paragraphs
must be removed.
"""

from __future__ import annotations

import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import common
import numpy as np

import unmask
from unmask.data.labelled.labelled_file import read_rows
from unmask.demo.documentation import prose, read_docstrings

SST2, SST2_DEV = "classification/sst2/train.tsv.xz", "classification/sst2/dev.tsv"
"""Phrases, and whole sentences to score on."""
TOPICS = {
    "code": "abc ast bdb code codeop compileall dataclasses dis doctest enum functools importlib inspect linecache "
    "pdb pkgutil profile pstats pydoc runpy symtable timeit tokenize trace traceback types typing unittest",
    "files": "bz2 dbm filecmp fileinput fnmatch genericpath glob gzip lzma mailbox ntpath os pathlib posixpath shelve "
    "shutil stat tarfile tempfile zipfile zipimport _pyio",
    "graphics": "colorsys curses idlelib tkinter turtle turtledemo",
    "network": "asyncio ftplib http imaplib ipaddress poplib selectors smtplib socket socketserver ssl urllib "
    "webbrowser wsgiref xmlrpc",
    "numbers": "_pydatetime _pydecimal _strptime bisect calendar datetime decimal fractions heapq numbers random "
    "statistics zoneinfo",
    "processes": "concurrent contextlib copy logging multiprocessing pickle pty queue sched signal sqlite3 subprocess "
    "threading weakref",
    "text": "argparse base64 codecs configparser csv difflib email encodings gettext html json locale mimetypes "
    "optparse plistlib pprint quopri re reprlib shlex string textwrap tomllib xml",
}
"""Modules of the standard library, also those of single versions of Python, by topic."""
MODULES = 24
"""Number of modules that are labels of their own."""
WORDS = range(6, 61)
"""Numbers of words of the paragraphs that are used."""
TRAIN, TEST = 70, 100
"""Maximum numbers of paragraphs of each topic."""


class Labelled(NamedTuple):
    """A text and its label."""

    text: str
    label: str


def read_texts(*names: str, **columns: str) -> list[Labelled]:
    """Return the examples of some files of the shared data."""
    rows = read_rows([common.SHARED / name for name in names], columns=columns)
    return [Labelled(row.values["text"].strip(), row.values["label"]) for row in rows]


def embed(texts: Sequence[str]) -> np.ndarray:
    """Return the mean vectors of MiniLM, a sentence-embedding model, (texts, width)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", unmask.InputWarning)
        return unmask.load(common.minilm()).embed(list(texts))


def topics(root: Path | None = None) -> tuple[list[Labelled], list[Labelled]]:
    """Return the examples to learn from and those to test on.

    Args:
        root: the folder of a standard library; None: that of this Python.
    """
    texts = paragraphs_by_topic(root)
    train = [Labelled(text, topic) for topic, own in texts.items() for text in own[TEST : TEST + TRAIN]]
    return train, [Labelled(text, topic) for topic, own in texts.items() for text in own[:TEST]]


def every_paragraph() -> list[Labelled]:
    """Return all paragraphs with their topics."""
    return [Labelled(text, topic) for topic, texts in paragraphs_by_topic().items() for text in texts]


@cache
def parted(name: str) -> tuple[list[Labelled], list[Labelled]]:
    """Return three quarters of the paragraphs of each label to learn from, and the others.

    Args:
        name: "topics", or "modules": those of the modules that have most paragraphs.
    """
    modules = {module: module for names in TOPICS.values() for module in names.split()}
    texts = paragraphs_by_topic(topics=modules if name == "modules" else TOPICS)
    if name == "modules":
        texts = {module: texts[module] for module in sorted(texts, key=lambda module: -len(texts[module]))[:MODULES]}
    train = [Labelled(text, label) for label, own in texts.items() for text in own[len(own) // 4 :]]
    return train, [Labelled(text, label) for label, own in texts.items() for text in own[: len(own) // 4]]


def paragraphs_by_topic(root: Path | None = None, topics: Mapping[str, str] = TOPICS) -> dict[str, list[str]]:
    """Return all paragraphs that belong to one topic only, in a seeded order.

    Args:
        root: the folder of a standard library; None: that of this Python.
        topics: the modules of each topic, separated by spaces.
    """
    folder = Path(sysconfig.get_paths()["stdlib"]) if root is None else root
    candidates = {topic: dict.fromkeys(_paragraphs(folder, names.split())) for topic, names in topics.items()}
    count = Counter(text for texts in candidates.values() for text in texts)
    return {
        topic: sorted((text for text in texts if count[text] == 1), key=_hash) for topic, texts in candidates.items()
    }


def _paragraphs(folder: Path, names: list[str]) -> Iterator[str]:
    """Yield the paragraphs of some modules, or of all modules in packages."""
    for name in names:
        for path in sorted([folder / f"{name}.py", *(folder / name).rglob("*.py")]):
            if path.is_file() and "test" not in path.relative_to(folder).as_posix().replace("unittest", ""):
                for docstring in read_docstrings(path):
                    yield from (text for text in prose(docstring) if len(text.split()) in WORDS and "\t" not in text)


def _hash(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
