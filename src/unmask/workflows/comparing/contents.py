"""Fingerprints of the files and the models that cells depend on: read once for a plan, and again for each new result.

A result is stored under the fingerprints of its plan. Files that change while cells are computed would make it one of
other contents, so it is not stored then.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from unmask.data.labelled.json_file import suffix_of
from unmask.data.labelled.table import ExampleTable, Source, as_sources
from unmask.data.text.record_files import fingerprint_source
from unmask.model.directory import find
from unmask.support.errors import UserError
from unmask.support.fingerprint import fingerprint_path
from unmask.support.urls import address_of
from unmask.workflows.comparing.cells import Cell


class Contents:
    """Fingerprints, each of which is computed once, however many cells, arms and sizes depend on it."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._models: dict[str, str | None] = {}

    def of_files(self, name: str, files: Sequence[Source]) -> list[str]:
        """Return the fingerprints of files, with the suffixes by which they are read.

        Args:
            name: what they are, for errors.
            files: paths, also URLs, and names of data sets.

        Raises:
            UserError: one cannot be read, or can be read only once.
        """
        contents = []
        for path in as_sources(list(files)):
            assert not isinstance(path, ExampleTable)  # they are named
            key = str(path)
            if key not in self._files:
                self._files[key] = _of_file(name, path)
            contents.append(self._files[key])
        return contents

    def of_model(self, name: str) -> str | None:
        """Return the fingerprint of a model."""
        if name not in self._models:
            self._models[name] = fingerprint_path(find(Path(name) if Path(name).is_dir() else name))
        return self._models[name]


def _of_file(name: str, path: str | Path) -> str:
    try:
        content = fingerprint_source(path)
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", file=str(path)) from error
    if content is None:
        raise UserError(f"{name}: no such file, or one that can be read only once", file=str(path))
    return f"{content} {suffix_of(path)}".rstrip()


def check_unchanged(cell: Cell, folder: Path) -> None:
    """Check that what a cell has read is what its key says; URLs are not read again.

    Args:
        cell: the cell, which has been computed.
        folder: its folder, whose directories are removed if not: they are made of other contents.

    Raises:
        UserError: a file or a model has changed.
    """
    now = Contents()
    model = cell.paths.get("model")
    changed = [path for path, content in _planned(cell) if now.of_files(cell.name, [path]) != [content]]
    if model and (planned := cell.inputs.get("model")) is not None and now.of_model(model) != planned:
        changed.append(model)
    if changed:
        for made in folder.iterdir():
            if made.is_dir():
                shutil.rmtree(made)
        raise UserError(
            "has changed since the comparison began, so that this result would not be of what the others are",
            file=str(changed[0]),
            remedy="repeat the command, with the file as it was or with all that depends on it computed again",
        )


def _planned(cell: Cell) -> Iterator[tuple[Source, str]]:
    """Yield the files that a cell reads with their fingerprints, but for URLs."""
    files, contents = cell.paths.get("files"), cell.inputs.get("files", {})
    parts = [(cell.paths.get(name, ()), cell.inputs.get(name, ())) for name in ("text", "unlabelled")]
    if files is not None:
        by_role = contents if isinstance(contents, Mapping) else {"train": contents}  # a first look reads these alone
        parts += [(getattr(files, part), by_role.get(role, ())) for part, role in (("train", "train"), ("dev", "test"))]
    for paths, planned in parts:
        for path, content in zip(paths, planned, strict=False):
            if not address_of(path):
                yield path, content
