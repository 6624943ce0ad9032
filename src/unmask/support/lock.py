"""Lock files against concurrent programs; a lock is released as soon as its process ends, however that happens.

`filelock` uses flock on Unix and msvcrt on Windows. The file is not removed on release (except on Windows).
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock, Timeout


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
