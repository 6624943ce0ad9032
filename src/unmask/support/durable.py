"""Crash-safe files: content is on the disk before its name points to it; checksums detect other damage.

Lock files against concurrent programs; a lock is released as soon as its process ends, however that happens.

`filelock` uses flock on Unix and msvcrt on Windows. The file is not removed on release (except on Windows).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

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


def acquire(path: Path) -> FileLock | None:
    """Lock a file, creating it if it is missing.

    Args:
        path: path of the lock file.

    Returns:
        The lock, which the caller must release; None if another program holds it.

    Raises:
        OSError: the file cannot be written.
    """
    lock = FileLock(path, mode=0o644, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return None
    return lock


def is_locked(path: Path) -> bool:
    """Return whether a program holds the lock. No file is created, and on Unix the file need not be writable."""
    if find_spec("fcntl") is None:
        lock = acquire(path) if path.exists() else None
        if lock is not None:
            lock.release()
        return lock is None and path.exists()
    import fcntl

    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
