"""A bounded cache of files on this machine, which processes share.

Input: a name that stands for the content, the size, and a function that writes the file. Output: the file, open. It
has its name only when it is complete, and one process makes it while others wait. Files are held while they are open;
to make room, those that nobody holds are removed, the one that was used least recently first.

    UNMASK_CACHE/files/NAME         a complete file
    UNMASK_CACHE/files/NAME.part    one that is being written; it takes its whole size from the start

A file is held by a shared lock on it, which ends with its process. Windows keeps files that are open by itself.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from unmask.support.durable import create, named, only_writer
from unmask.support.errors import UserError

FOLDER, SIZE = "UNMASK_CACHE", "UNMASK_CACHE_GB"
"""Environment variables: where the cache is, and how many gigabytes (10^9 bytes) it may have."""
GIGABYTES = 20.0
"""The default of `SIZE`."""
_LOCKS = find_spec("fcntl") is not None
READ = os.O_RDONLY | getattr(os, "O_BINARY", 0)
"""Flags of a file that is read as it is stored, also on Windows."""


def cache_folder() -> Path:
    """Return the folder with the files of the cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unmask"
    return Path(os.environ.get(FOLDER) or default) / "files"


def cache_limit() -> int:
    """Return how many bytes the cache may have.

    Raises:
        UserError: the environment variable is not a positive number.
    """
    text = os.environ.get(SIZE, str(GIGABYTES))
    try:
        gigabytes = float(text)
    except ValueError:
        gigabytes = math.nan
    if not 0 < gigabytes < 1e9:
        raise UserError(f"{SIZE}={text[:40]} is not a positive number of gigabytes", remedy="set another, or unset it")
    return int(gigabytes * 1e9)


def open_cached(name: str, size: int, write: Callable[[BinaryIO], None], source: str) -> tuple[int, Path]:
    """Open a file of the cache, which is made if it is missing.

    Args:
        name: its name there, which stands for its content.
        size: its size in bytes.
        write: writes it, into an empty file that can be read, too.
        source: what it is a copy of, for messages.

    Returns:
        The file, held until it is closed, and its path.

    Raises:
        UserError: there is no room.
        OSError: it cannot be written.
    """
    folder = cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / name
    while (handle := _hold(path)) is None:
        with only_writer(path, wait=True):
            if not path.exists():
                _make(path, size, write, source)
    with suppress(OSError):  # of another user
        os.utime(path)
    return handle, path


def drop_cached(name: str) -> None:
    """Remove a file of the cache that is damaged."""
    (cache_folder() / name).unlink(missing_ok=True)


def _hold(path: Path) -> int | None:
    """Open a file and lock it against removal; None: it is not there."""
    try:
        handle = os.open(path, READ)
    except FileNotFoundError:
        return None
    if _LOCKS:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_SH)
        if not os.fstat(handle).st_nlink:  # it was removed in between
            os.close(handle)
            return None
    return handle


def _make(path: Path, size: int, write: Callable[[BinaryIO], None], source: str) -> None:
    part, held = path.with_name(f"{path.name}.part"), None
    try:
        with named(part):
            with only_writer(path.parent, wait=True):
                _make_room(path.parent, size, source)
                create(part).close()
                file = part.open("r+b")
                file.truncate(size)
                held = _hold(part) if _LOCKS else None  # Windows could not rename it
            with file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    finally:
        if held is not None:
            os.close(held)


def _make_room(folder: Path, size: int, source: str) -> None:
    """Remove files until there is room for another one, which the caller has locked the folder for.

    Raises:
        UserError: there is none.
    """
    limit = cache_limit()
    larger = f"set {SIZE} to more"
    if size > limit:
        raise UserError(
            f"has {size / 1e9:.3g} GB, and the cache of remote files only {limit / 1e9:.3g} GB",
            file=source,
            remedy=larger,
        )
    entries = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            status = path.stat()
            entries.append((status.st_mtime_ns, status.st_size, path))
    excess = sum(entry[1] for entry in entries) + size - limit
    for _, bytes_freed, path in sorted(entries):
        if excess > 0 and bytes_freed and _remove_unused(path):
            excess -= bytes_freed
    if excess > 0:
        raise UserError(
            f"does not fit into the cache of remote files ({limit / 1e9:.3g} GB), of which most is in use",
            file=source,
            remedy=larger,
        )
    if shutil.disk_usage(folder).free < size:
        raise UserError(
            f"the disk with {folder} lacks room for {size / 1e9:.3g} GB",
            file=source,
            remedy=f"set {FOLDER} to a folder elsewhere",
        )


def _remove_unused(path: Path) -> bool:
    """Remove a file unless a process holds it; return whether it is gone."""
    if not _LOCKS:
        try:
            path.unlink(missing_ok=True)
        except PermissionError:
            return False
        return True
    import fcntl

    try:
        handle = os.open(path, READ)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True
