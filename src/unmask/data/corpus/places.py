"""Where a corpus is: a directory, or a URL of one, of which files are copied when they are needed.

Input: a path or a `Url`. Output: files on this machine. The small files of a corpus at a URL are copied when it is
opened, into a temporary directory; those of a shard when they are first read, into the cache, under the SHA-256 that
the manifest states, so that a copy of the same content is never read again, whatever its URL.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from unmask.support.cache import READ
from unmask.support.stores import (
    AccessError,
    MissingError,
    copy_on_disk,
    drop_verified,
    open_verified,
    verified_on_disk,
)
from unmask.support.urls import Url

Place = Path | Url


def file_at(place: Place, name: str) -> Path | Url:
    """Return the path or the URL of a file of a corpus, for messages."""
    return place / name if isinstance(place, Path) else place.child(name)


def open_shard_file(place: Place, name: str, size: int, sha256: str) -> int:
    """Open a file of a shard for reading."""
    if isinstance(place, Path):
        return os.open(place / name, READ)
    return open_verified(place.child(name), size, sha256)


@contextmanager
def shard_file(place: Place, name: str, size: int, sha256: str) -> Iterator[Path]:
    """Yield the path of a file of a shard on this machine."""
    if isinstance(place, Path):
        yield place / name
        return
    with verified_on_disk(place.child(name), size, sha256) as path:
        yield path


def drop_copy(place: Place, name: str, sha256: str) -> bool:
    """Remove the copy of a file of a shard that is damaged; return whether it was a copy."""
    if isinstance(place, Path):
        return False
    drop_verified(place.child(name), sha256)
    return True


def copy_small_files(url: Url, names: Sequence[str], directory: Path) -> None:
    """Copy files of a corpus.

    Args:
        url: where the corpus is.
        names: their names; those that are missing there are left out, but the first.
        directory: where they are copied to.

    Raises:
        UserError: the first is missing, or a file cannot be read.
        UnmaskError: the store fails.
    """
    for name in names:
        target = directory / name
        target.parent.mkdir(exist_ok=True)
        try:
            with copy_on_disk(url.child(name)) as file:
                shutil.copyfile(file, target)
        except (MissingError, AccessError):
            if name == names[0]:
                raise
