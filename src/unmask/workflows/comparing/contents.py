"""Fingerprints of the files and the models that cells depend on: read once for a plan.

A result is stored under the fingerprints of its plan. Files that change while cells are computed would make it one of
other contents, so it is not stored then: what has other sizes or times than when it was read is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from unmask.data.labelled.json_file import suffix_of
from unmask.data.labelled.table import ExampleTable, Source, as_sources
from unmask.data.text.files import split_part
from unmask.data.text.record_files import fingerprint_source
from unmask.model.directory import find
from unmask.support.errors import UserError
from unmask.support.fingerprint import Stats, fingerprint_path, stats_of_path


class _Read(NamedTuple):
    """A fingerprint of what is at a path, and the stats that were there before it was read."""

    place: Path
    stats: Stats | None
    fingerprint: str | None


class Contents:
    """Fingerprints, each of which is computed once, however many cells, arms and sizes depend on it."""

    def __init__(self) -> None:
        self._files: dict[str, _Read] = {}
        self._models: dict[str, _Read] = {}

    def of_files(self, name: str, files: Sequence[Source]) -> list[str | None]:
        """Return the fingerprints of files, with the suffixes by which they are read.

        Args:
            name: what they are, for errors.
            files: paths, also URLs, and names of data sets.

        Raises:
            UserError: one cannot be read, or can be read only once.
        """
        fingerprints = []
        for path in as_sources(list(files)):
            assert not isinstance(path, ExampleTable)  # they are named
            key = str(path)
            if key not in self._files:
                place = split_part(path)[0]
                self._files[key] = _Read(place, stats_of_path(place), _of_file(name, path))
            fingerprints.append(self._files[key].fingerprint)
        return fingerprints

    def of_model(self, name: str) -> str | None:
        """Return the fingerprint of a model."""
        if name not in self._models:
            place = find(Path(name) if Path(name).is_dir() else name)
            self._models[name] = _Read(place, stats_of_path(place), fingerprint_path(place))
        return self._models[name].fingerprint

    def forget_changed(self, names: Iterable[str]) -> None:
        """Forget the fingerprints of files and models that may have changed since they were read."""
        for name in names:
            for known in (self._files, self._models):
                if (read := known.get(name)) and (read.stats is None or read.stats != stats_of_path(read.place)):
                    del known[name]


def _of_file(name: str, path: str | Path) -> str:
    try:
        content = fingerprint_source(path)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=str(path)) from error
    if content is None:
        raise UserError(f"{name}: no such file, or one that can be read only once", file=str(path))
    return f"{content} {suffix_of(path)}".rstrip()
