"""Checksums of the files of a model directory that unmask wrote, so that damage to them is not taken for weights.

Input: a directory. Output: `checksums.json` in it, with the sha256 of each file that `load_model` reads. Directories of
other programs have no such file, and are not checked; transformers ignores it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from unmask.data.text.files import read_whole
from unmask.support.durable import replace_file, sha256
from unmask.support.errors import UserError

NAME = "checksums.json"
REMEDY = f"copy the directory again, or, if the change was made on purpose, remove {NAME}"


def write_checksums(directory: Path, names: Iterable[str]) -> None:
    """Record the checksums of the given files of a directory, those that exist."""
    found = {name: sha256(directory / name) for name in sorted(names) if (directory / name).is_file()}
    replace_file(directory / NAME, msgspec.json.format(msgspec.json.encode(found)) + b"\n")


def check_checksums(directory: Path) -> None:
    """Check the files of a directory against its checksums, if it has any.

    Raises:
        UserError: a file is missing or differs; the message names it.
    """
    path = directory / NAME
    if not path.is_file():
        return
    try:
        wanted = msgspec.json.decode(read_whole(path), type=dict[str, str])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"the file is damaged ({error})", file=path, remedy=REMEDY) from error
    for name, digest in wanted.items():
        file = directory / Path(name).name
        if not file.is_file():  # reading a pipe could block forever
            raise UserError("cannot be read: there is no such file", file=file, remedy=REMEDY)
        try:
            same = sha256(file) == digest
        except OSError as error:
            raise UserError(f"cannot be read ({error.strerror})", file=file, remedy=REMEDY) from error
        if not same:
            raise UserError(f"is damaged or was changed: its sha256 is not that in {NAME}", file=file, remedy=REMEDY)
