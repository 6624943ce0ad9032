"""Fingerprints of contents, by which stored results recognize what they were made from: never by a path or a date.

All are SHA-256, for which processors have instructions: 1.4 GiB/s here, so that a gigabyte of text takes 0.7 s.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from unmask.support import __version__
from unmask.support.plugins import packages

if TYPE_CHECKING:
    from torch import Tensor


def sha256(path: Path) -> str:
    """Return the sha256 of a file as a hexadecimal string."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 of the names, types, shapes and values of tensors; it is the same on any device."""
    import torch  # not for the others, which programs without torch use

    digest = hashlib.sha256()
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        data = value.detach().cpu().contiguous().reshape(-1)
        digest.update(data.view(torch.uint8).numpy().data)  # as bytes, since NumPy has no bf16
    return digest.hexdigest()


def fingerprint_values(values: Any) -> str:
    """Return the sha256 of values that JSON can represent, whatever the order of their keys."""
    return hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()


def fingerprint_path(path: str | Path) -> str | None:
    """Return the sha256 of a file, or of the names and contents of all files in a directory.

    Hidden files, and those in hidden folders, are left out.

    Returns:
        None for what is neither, such as a pipe, which can be read only once.

    Raises:
        OSError: a file cannot be read.
    """
    path = Path(path)
    if path.is_file():
        return sha256(path)
    if not path.is_dir():
        return None
    return fingerprint_values([[file.relative_to(path).as_posix(), sha256(file)] for file in _files_in(path)])


def _files_in(directory: Path) -> Iterator[Path]:
    """Yield the files of a directory in order, without hidden ones and those in hidden folders."""
    for file in sorted(directory.rglob("*")):
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(directory).parts):
            yield file


Stats = list[tuple[str, int, int, int, int]]
"""Name, size, times of change of the content and of the entry, and number of each file at a path."""
COARSE = 2.0
"""Seconds by which times of change may differ from when it was: some file systems keep no others."""


def stats_of_path(path: str | Path) -> Stats | None:
    """Return by what a change of what `fingerprint_path` reads is noticed without reading it.

    Returns:
        None if that cannot be relied upon: a file has changed so recently that another change of the same size might
        leave its times as they are, or cannot be found.
    """
    path, stats = Path(path), Stats()
    try:
        for file in _files_in(path) if path.is_dir() else [path]:
            found = file.stat()
            if max(found.st_mtime, found.st_ctime) > time.time() - COARSE:
                return None
            stats.append((str(file), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino))
    except OSError:
        return None
    return stats


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Return the versions of this package and of libraries, on which stored results may depend."""
    return {"unmask": __version__, **{name: _version(name) for name in libraries}}


_version = cache(importlib.metadata.version)


def environment(libraries: Iterable[str]) -> dict[str, str]:
    """Return the versions on which results depend: of libraries that are installed, Python, plug-ins and this code."""
    installed = {name: each.version for name in libraries for each in importlib.metadata.distributions(name=name)}
    return {
        **{f"version of {name}": version for name, version in {**versions(()), **installed, **packages()}.items()},
        "version of python": platform.python_version(),
        "code of unmask": _code(),
    }


@cache
def _code() -> str:
    """Return the sha256 of the source files of this package, of which there may be several states of one version."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()} {sha256(path)}\n".encode())
    return digest.hexdigest()


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return the names of the values in which two descriptions differ, in alphabetical order."""
    return [name for name in sorted(first.keys() | second.keys()) if first.get(name) != second.get(name)]


def differences(before: Mapping[str, Any], now: Mapping[str, Any], *, ignored: Iterable[str] = ()) -> list[str]:
    """Return in which values two descriptions differ, such as "seed was 0, now 1"; fingerprints are shortened."""
    changed = [name for name in differing(before, now) if name not in ignored]
    return [f"{name} was {shown(before.get(name))}, now {shown(now.get(name))}" for name in changed]


def shown(value: Any) -> str:
    """Return a value as text for messages; fingerprints are shortened."""
    if value is None:
        return "not set"
    text = str(value)
    return text[:12] if len(text) == 64 and not set(text) - set("0123456789abcdef") else text
