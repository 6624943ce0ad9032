"""Crash-safe files: content is on the disk before its name points to it; checksums detect other damage."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

OPENS_FOLDERS = hasattr(os, "O_DIRECTORY")
"""Whether directories can be opened to make the names in them durable; not on Windows."""


def sha256(path: Path) -> str:
    """Return the sha256 of a file as a hexadecimal string."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush the content of a file, or the names in a directory where supported, to the disk."""
    if not OPENS_FOLDERS and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY if OPENS_FOLDERS else os.O_RDWR)  # Windows flushes only writable handles
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Add the name of a file to errors of the operating system that lack it, such as that of a full disk.

    Raises:
        OSError: as it was raised, with a file.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise type(error)(error.errno, error.strerror or str(error), str(path)) from error


def create(path: Path) -> BinaryIO:
    """Create a temporary file for writing, in place of one that an interrupted program has left.

    A link of this name is removed, not followed: in a shared folder somebody else may have put it there.
    """
    path.unlink(missing_ok=True)
    return path.open("xb")


def replace_file(path: Path, content: bytes) -> None:
    """Write a temporary file and rename it, so that readers see either the old or the new content in full.

    Raises:
        OSError: the file cannot be written; the old content is unchanged.
    """
    temporary = path.with_name(f".{path.name}.part")
    try:
        with named(path):
            with create(temporary) as file:
                file.write(content)
            sync(temporary)
            temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)
