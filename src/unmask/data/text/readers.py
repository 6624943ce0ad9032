"""Readers of files of records, by suffix: Parquet, Arrow, and those of installed packages.

Input: a file, or a directory of `datasets`. Output: numbered records, values by column, for text and labeled examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from unmask.data.text.arrow_file import is_dataset, read_arrow
from unmask.support.plugins import Registry

Record = dict[str, Any]
Reader = Callable[[str | Path], Iterator[tuple[int, Record]]]
"""Yields the number of each record, from 1, and its values by column; raises a `UserError` that names file and line."""

READERS: Registry[Reader] = Registry("unmask.readers", dict.fromkeys(("parquet", "arrow", "feather"), read_arrow))
"""Reader by suffix, in lower case and without the dot."""


def has_reader(path: str | Path) -> bool:
    """Return whether a path is read by `read_file`, by its suffix or as a directory of `datasets`."""
    return _suffix(path) in READERS or is_dataset(Path(path))


def read_file(path: str | Path) -> Iterator[tuple[int, Record]]:
    """Read the records of a file, or of a directory of `datasets`; see `Reader`.

    Raises:
        UserError: it cannot be read, or is damaged.
    """
    read = READERS.get(_suffix(path), read_arrow)
    yield from read(path)


def _suffix(path: str | Path) -> str:
    return Path(path).suffix.lower().removeprefix(".")
