"""Crash-safe outputs: content is on the disk before its name points to it. Checksums (`sha256`) detect other damage.

An output has one writer: `only_writer` locks a file or a directory, by `.NAME.lock` beside it, and `new_directory`
shows the files of a new directory all at once.

A lock is released as soon as its process ends, however that happens. `filelock` uses flock on Unix and msvcrt on
Windows. The file is not removed on release (except on Windows), but `only_writer` removes its own.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
from filelock import FileLock, Timeout

from unmask.support.choices import refuse_url
from unmask.support.errors import UserError
from unmask.support.messages import argument

_Content = TypeVar("_Content")
OPENS_FOLDERS = hasattr(os, "O_DIRECTORY")
"""Whether directories can be opened to make the names in them durable; not on Windows."""
OF_MOUNTS = {".lock", ".part", "lost+found"}
"""What may be in an empty directory that is a mount point; see `new_directory`."""


def sync(path: Path) -> None:
    """Flush the content of a file, or the names in a directory where supported, to the disk."""
    if not OPENS_FOLDERS and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY if OPENS_FOLDERS else os.O_RDWR)  # Windows flushes only writable handles
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def full_disk(error: BaseException | None) -> OSError | None:
    """Return the error of a full disk, or of an exceeded quota, that an error is or was caused by; None: neither."""
    while error is not None and not (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)):
        error = error.__cause__
    return error


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
    with replaced_file(path) as temporary, create(temporary) as file:
        file.write(content)


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield the path of a file to be written, which takes the place of another one; see `replace_file`."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with named(path):
            yield temporary
            sync(temporary)
            temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def read_json(path: Path, kind: type[_Content], remedy: str) -> _Content:
    """Return the content of a JSON file of our own.

    Args:
        path: the file.
        kind: type of its content.
        remedy: what to do if it is damaged.

    Raises:
        UserError: it is.
        OSError: it cannot be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the file is damaged ({error})", file=path, remedy=remedy) from error


def acquire(path: Path, *, wait: bool = False) -> FileLock | None:
    """Lock a file, creating it if it is missing.

    Args:
        path: path of the lock file.
        wait: wait for another program that holds it.

    Returns:
        The lock, which the caller must release; None if another program holds it.

    Raises:
        OSError: the file cannot be written.
    """
    lock = FileLock(path, mode=0o644, thread_local=False)
    try:
        lock.acquire(timeout=-1 if wait else 0)
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


@contextmanager
def only_writer(out: Path | None, name: str = "out", *, wait: bool = False) -> Iterator[None]:
    """Lock an output against all others that write it: what is written is the work of one of them.

    Args:
        out: a file or a directory, which need not exist; None: nothing is written.
        name: the parameter that names it.
        wait: wait for another program instead of raising an error.

    Raises:
        UserError: it is being written.
        OSError: nothing can be written beside it.
    """
    if out is None:
        yield
        return
    path = _beside(out, "lock")
    try:
        lock = acquire(path, wait=wait)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(out)) from error
    if lock is None:
        raise UserError(
            "another program is writing it", file=out, remedy=f"wait for it, or choose another {argument(name)}"
        )
    try:
        yield
    finally:
        try:
            if OPENS_FOLDERS:  # while it is locked: whoever has opened it meanwhile sees that it was removed
                path.unlink(missing_ok=True)
        finally:
            lock.release()


def _beside(out: Path, suffix: str) -> Path:
    """Return the path of what is temporarily written for an output, hidden beside it, or in it if it is mounted."""
    out = out.resolve()
    return out / f".{suffix}" if out.is_mount() else out.with_name(f".{out.name}.{suffix}")


def check_file(path: Path, name: str = "out") -> None:
    """Raise an error, before anything is computed, if a file to write is a directory, or there is none for it.

    Args:
        path: the file.
        name: the parameter that names it.

    Raises:
        UserError: it is, or there is none.
    """
    refuse_url(path)
    if path.is_dir():
        raise UserError(f"{argument(name)} is a directory", file=path, remedy="name a file")
    if not path.parent.is_dir():
        raise UserError(
            "there is no such directory", file=path.parent, remedy=f"create it, or name another {argument(name)}"
        )


def check_directory(directory: Path) -> None:
    """Raise an error if a directory to write to is a file, or a URL.

    Raises:
        UserError: it is.
    """
    refuse_url(directory)
    if directory.is_file():
        raise UserError("is a file, not a directory", file=directory, remedy=f"choose another {argument('out')}")


def refuse_filled(directory: Path) -> None:
    """Raise an error if a directory for new files exists and is not empty, or is a file.

    Raises:
        UserError: it is.
    """
    check_directory(directory)
    names = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    if directory.is_symlink() or names - OF_MOUNTS:
        raise UserError("the directory is not empty", file=directory, remedy=f"choose another {argument('out')}")


@contextmanager
def new_directory(out: Path) -> Iterator[Path]:
    """Yield a folder that becomes a new directory when all is written: a program that was killed leaves none.

    The folder is `.NAME.part` beside it, or `.part` in it if it is a mount point, which may be another disk. What a
    killed program left there is removed, as it is after an error.

    Args:
        out: the directory, which must be empty or not exist; its parents are created.

    Raises:
        UserError: it is not empty, or another program is writing it.
    """
    refuse_filled(out)
    out.resolve().parent.mkdir(parents=True, exist_ok=True)
    with only_writer(out):
        refuse_filled(out)  # by a program that has ended meanwhile
        with replaced_directory(out) as aside:
            yield aside


@contextmanager
def replaced_directory(out: Path) -> Iterator[Path]:
    """Yield a folder that takes the place of a directory, as `new_directory` does; the caller has the lock."""
    aside = _beside(out, "part")
    if aside.exists():
        shutil.rmtree(aside)
    aside.mkdir(parents=True)
    try:
        yield aside
        _publish(aside, out.resolve())
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _publish(aside: Path, out: Path) -> None:
    """Make a directory visible under its name, once all of it is on the disk, in place of one that may be there."""
    for path in (*aside.rglob("*"), aside):
        sync(path)
    if out.is_mount():  # which cannot be replaced
        for path in aside.iterdir():
            path.replace(out / path.name)
        sync(out)
        return
    old = _beside(out, "old")
    shutil.rmtree(old, ignore_errors=True)
    with suppress(FileNotFoundError):
        out.replace(old)
    try:
        aside.replace(out)
    except OSError:
        with suppress(FileNotFoundError):
            old.replace(out)
        raise
    shutil.rmtree(old, ignore_errors=True)
    sync(out.parent)
