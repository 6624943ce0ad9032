"""Reading of files in object stores and on web servers, by way of the cache.

Input: a `Url` (urls.py). Output: a complete copy of the file on this machine, which stays while it is used. A store is
whatever fsspec knows by the protocol of the URL (s3, gs, http, https, hf, memory, …; the extra `remote`), and takes its
credentials from where its library looks for them.

A file is looked up each time: its size and version (ETag and the like) name the copy, so that one that has changed is
read anew. A store that fails, is slow or cuts a body off is asked again, from where it stopped, after growing pauses. A
copy is used only if it has the size that the store has stated, the version is the same after it was read, and its
SHA-256 is right, where that is known. Messages name the URL without what may be secret, and of the errors of libraries
only what names no URL.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, TypeVar
from urllib.parse import urlsplit

from unmask.support.cache import drop_cached, open_cached
from unmask.support.errors import UnmaskError, UserError, rename
from unmask.support.urls import Url

PAUSES = [0.5, 2.0, 8.0]
"""Seconds before a store that has failed is asked again."""
TIMEOUT = 60
"""Seconds that a web server may be silent."""
BLOCK = 1 << 24
"""Number of bytes that are asked for at a time."""
START = 1 << 20
"""Number of bytes by which the content of a file is recognized."""

PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
}
"""Packages that fsspec needs for stores, beside the extra `remote`."""
_VERSIONS = (
    *("ETag", "etag", "md5Hash", "blob_id", "Content-MD5", "Digest", "VersionId"),
    *("LastModified", "Last-Modified", "last_modified", "mtime", "created"),
)
"""What file systems of fsspec call the version of a file, the most exact first."""
_SUFFIXES = re.compile(r"(?:\.[A-Za-z0-9]{1,8}){0,2}$")
_RETRIED = (408, 425, 429)
_Result = TypeVar("_Result")


class _Object(NamedTuple):
    """A file in a store: its file system of fsspec, its path there, its size in bytes, and its version."""

    store: Any
    path: str
    size: int
    version: str


class MissingError(UserError):
    """Raised if there is no file at a URL."""


class AccessError(UserError):
    """Raised if what is at a URL may not be read; some stores say so of files that are missing."""


class _Fault(Exception):
    """Raised when a store has given something other than it said."""


def look_up(url: Url) -> tuple[int, str]:
    """Return the size in bytes and the version of the file at a URL.

    Raises:
        UserError: there is none, it may not be read, or a package is missing.
        UnmaskError: the store fails.
    """
    known = _look(url)
    return known.size, known.version


@contextmanager
def copy_on_disk(url: Url, *, start: bool = False) -> Iterator[Path]:
    """Yield the path of a copy of a file.

    Errors of unmask that are raised meanwhile name the URL in place of the copy.

    Args:
        url: the file.
        start: whether only the first `START` bytes are needed.

    Raises:
        UserError: as for `look_up`; or the copy is too large for the cache.
        UnmaskError: the store fails, or cuts the file off.
    """
    known = _look(url)
    size = min(known.size, START) if start else known.size
    name = hashlib.sha256(f"{url.address}\n{known.version}\n{known.size}\n{size}".encode()).hexdigest()
    with _opened(url, f"{name}{_suffixes(url)}", size, lambda file: _download(url, known, size, file)) as copy:
        yield copy


def open_verified(url: Url, size: int, sha256: str) -> int:
    """Open a copy of a file whose content is known.

    Returns:
        The file, held until it is closed.

    Raises:
        UserError: as for `on_disk`.
        UnmaskError: as for `on_disk`; or the content is another one.
    """
    return _open(url, _verified_name(url, size, sha256), size, lambda file: _fetch_verified(url, size, sha256, file))[0]


@contextmanager
def verified_on_disk(url: Url, size: int, sha256: str) -> Iterator[Path]:
    """Yield the path of a copy of a file whose content is known; see `open_verified`."""
    name = _verified_name(url, size, sha256)
    with _opened(url, name, size, lambda file: _fetch_verified(url, size, sha256, file)) as copy:
        yield copy


def drop_verified(url: Url, sha256: str) -> None:
    """Remove the copy of a file that is damaged."""
    drop_cached(_verified_name(url, 0, sha256))


def _verified_name(url: Url, size: int, sha256: str) -> str:
    """Return the name of a copy of a file whose content is known by what somebody else has written.

    Raises:
        UserError: that is no size or no SHA-256.
    """
    if size < 0 or not re.fullmatch("[0-9a-f]{64}", sha256):
        raise UserError("is listed with a size or a sha256 that is none", file=url, remedy="do not trust the list")
    return sha256


@contextmanager
def _opened(url: Url, name: str, size: int, write: Callable[[BinaryIO], None]) -> Iterator[Path]:
    handle, file = _open(url, name, size, write)
    try:
        yield file
    except UnmaskError as error:
        rename(error, file, url)
        raise
    finally:
        os.close(handle)


def _open(url: Url, name: str, size: int, write: Callable[[BinaryIO], None]) -> tuple[int, Path]:
    try:
        return open_cached(name, size, write, url)
    except OSError as error:
        raise _uncopied(url, error.filename, error) from error


def _uncopied(url: Url, path: str, error: OSError) -> UserError:
    remedy = "free some space, or set UNMASK_CACHE to another folder"
    return UserError(f"cannot be copied to {path} ({error.strerror})", file=url, remedy=remedy)


def _suffixes(url: Url) -> str:
    """Return the suffixes of a file, by which its format is told."""
    match = _SUFFIXES.search(PurePosixPath(url).name)
    return match[0] if match else ""


def _look(url: Url) -> _Object:
    """Return what a store says of a file."""

    def look() -> _Object:
        store, path = _store(url)
        store.invalidate_cache()
        info = store.info(path)
        if info.get("type") == "directory":
            raise UserError("is a directory", file=url, remedy="give its files")
        size = info.get("size")
        if not isinstance(size, int):
            raise UserError(
                "its server does not state its size, so that a part of it could not be told from all of it",
                file=url,
                remedy="download it first",
            )
        version = next((f"{key} {info[key]}" for key in _VERSIONS if info.get(key)), "")
        return _Object(store, path, size, version or f"of process {os.getpid()}")

    return _retried(url, look)


def _store(url: Url) -> tuple[Any, str]:
    """Return the file system of fsspec for a URL, and the path there.

    Raises:
        UserError: a package is missing, or the protocol is unknown.
    """
    protocol = urlsplit(url).scheme
    try:
        from fsspec.core import url_to_fs

        options: dict[str, Any] = {}
        if protocol in ("http", "https"):
            from aiohttp import ClientTimeout

            timeout = ClientTimeout(total=None, sock_connect=TIMEOUT, sock_read=TIMEOUT)
            options = {"client_kwargs": {"timeout": timeout}}
        return url_to_fs(url.address, **options)
    except ImportError as error:
        package = PACKAGES.get(protocol) if find_spec("fsspec") else None
        raise UserError(
            "needs a package that is not installed" + ("" if package else f" ({error})"),
            file=url,
            remedy=f"pip install {package}" if package else "pip install 'unmask[remote]'",
        ) from None
    except ValueError:
        raise UserError(
            f"'{protocol}' is not a protocol that fsspec knows",
            file=url,
            remedy="use one such as s3, gs, https or hf",
        ) from None


def _fetch_verified(url: Url, size: int, sha256: str, file: BinaryIO) -> None:
    """Write a file whose content is known."""

    def fetch() -> None:
        known = _look(url)
        if known.size != size:
            raise UserError(f"has {known.size:,} bytes, not {size:,}", file=url, remedy="upload it again")
        _download(url, known, size, file)
        file.seek(0)
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:  # type: ignore[arg-type]
            raise _Fault("its sha256 differs")

    _retried(url, fetch)


def _download(url: Url, known: _Object, size: int, file: BinaryIO) -> None:
    """Write the first bytes of a file, `size` of them, from where the last attempt has stopped."""
    done = 0

    def proceed() -> None:
        nonlocal done
        with known.store.open(known.path, "rb", block_size=BLOCK, cache_type="none") as source:
            if done:
                try:
                    source.seek(done)
                except (OSError, ValueError):  # a server that sends files from their beginning only
                    done = 0
            file.seek(done)
            while done < size:
                asked = min(BLOCK, size - done)
                block = source.read(asked)
                if not block:
                    raise _Fault(f"{done:,} of {size:,} bytes, then no more")
                if len(block) > asked:
                    raise _Fault("more bytes than were asked for")
                try:
                    file.write(block)
                    file.flush()
                except OSError as error:  # not the fault of the store
                    raise _uncopied(url, file.name, error) from error
                done += len(block)
        if _look(url).version != known.version:
            done = 0
            raise UnmaskError(f"{url}: has changed while it was read; run the same command again")

    _retried(url, proceed, lambda: done)


def _retried(url: Url, function: Callable[[], _Result], progress: Callable[[], int] = lambda: 0) -> _Result:
    """Return what a function returns that asks a store; it is called again if the store fails.

    Args:
        url: what is asked for.
        function: the function.
        progress: returns how far it has come: attempts are counted from the last one that has come further.

    Raises:
        UserError: there is no such file, or it may not be read.
        UnmaskError: the store has failed each time.
    """
    pauses, furthest = iter(PAUSES), 0
    while True:
        try:
            return function()
        except UnmaskError:
            raise
        except Exception as raised:
            error = _cause(raised)
            if refusal := _refusal(url, error):
                raise refusal from None  # the error of the library may name the whole address
            if progress() > furthest:
                pauses, furthest = iter(PAUSES), progress()
            if (pause := next(pauses, None)) is None:
                raise UnmaskError(
                    f"{url}: cannot be read, in {len(PAUSES) + 1} attempts ({_reason(error)}); try again later"
                ) from None
            time.sleep(pause)


def _cause(error: Exception) -> Exception:
    """Return an error of a web server in place of that of fsspec, which says of all that there is no such file."""
    cause = error.__cause__
    of_server = isinstance(cause, TimeoutError) or type(cause).__module__.startswith("aiohttp")
    return cause if isinstance(error, FileNotFoundError) and isinstance(cause, Exception) and of_server else error


def _refusal(url: Url, error: Exception) -> UserError | None:
    """Return the error for what asking again does not change; None for what it may."""
    status = getattr(error, "status", None)
    if isinstance(error, FileNotFoundError) or status == 404:
        hint = "; patterns are not expanded" if "*" in url else ""
        return MissingError("does not exist", file=url, remedy=f"check the URL{hint}")
    if isinstance(error, PermissionError) or status in (401, 403) or "Credential" in type(error).__name__:
        return AccessError(
            f"may not be read ({_reason(error)})",
            file=url,
            remedy="give credentials by environment variables or files, as the library of this store reads them",
        )
    if isinstance(status, int) and 400 <= status < 500 and status not in _RETRIED:
        return UserError(f"cannot be read ({_reason(error)})", file=url)
    return None


def _reason(error: Exception) -> str:
    """Return what a message says of an error of a library: no URL, nor what follows it, which may hold secrets."""
    if isinstance(status := getattr(error, "status", None), int):
        return f"status {status}"
    text = "" if isinstance(error, FileNotFoundError) else " ".join(str(error).split())
    text = re.split(r"\S*://", text)[0].strip(" '\"(:,")[:200]
    return text or type(error).__name__
