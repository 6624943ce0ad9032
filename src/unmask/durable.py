"""Files that survive a crash: what is written is on the disk before its name points to it; checksums tell the rest."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

OPENS_FOLDERS = hasattr(os, "O_DIRECTORY")
"""Whether the system opens folders, so that the names in them can be made durable; Windows does not."""


def sha256(path: Path) -> str:
    """Return the digest of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Make a file's content durable, or the names in a folder, where the system can."""
    if not OPENS_FOLDERS and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY if OPENS_FOLDERS else os.O_RDWR)  # Windows flushes what may be written to
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file aside and rename it: whoever reads it finds the old content or the new, whole.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    aside = path.with_name(f".{path.name}.part")
    try:
        aside.write_bytes(content)
        sync(aside)
        aside.replace(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    sync(path.parent)
