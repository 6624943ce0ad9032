"""A copy of the documents of raw files, for text that is needed several times but read once.

A vocabulary is learned from all of a text before its first token is encoded. So that raw files are not decompressed,
parsed and cleaned again for that, and may be pipes, their documents are written to a file as UTF-8, and their addresses
to another. Each ends with NUL, which no document contains. The copy takes as much space as the text does uncompressed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from unmask.data.text.documents import Skipped, SourceText, TextOptions, read_sources, refuse_none
from unmask.support.durable import create, named, new_directory, replace_file
from unmask.support.fingerprint import sha256

_TEXT, _URLS, _COPIED = "documents", "urls", "copied.json"
_BLOCK = 1 << 20


class _Copied(msgspec.Struct):
    """What is known of a copy: the SHA-256 of each file, and the documents that were not copied."""

    files: dict[str, str]
    skipped: Skipped


@dataclass(frozen=True)
class TextCopy:
    """Documents that were copied from raw files.

    Attributes:
        directory: where the copy is.
        skipped: documents that could not be used, and were not copied.
    """

    directory: Path
    skipped: Skipped

    @property
    def summary(self) -> bytes:
        """What was done to the documents before, as JSON; empty if nothing was."""
        return b""

    def __iter__(self) -> Iterator[str]:
        """Yield the texts of the documents, holding at most one and a block of the file in memory."""
        return (document.text for document in self.sources())

    def sources(self) -> Iterator[SourceText]:
        """Yield the documents, as `read_sources`."""
        return map(SourceText, read_ended(self.directory / _TEXT), read_ended(self.directory / _URLS))


def read_ended(path: Path) -> Iterator[str]:
    """Yield strings each of which ends with NUL in a file, holding at most one and a block of it in memory."""
    rest = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            *strings, rest = (rest + block).split(b"\0")
            yield from (string.decode() for string in strings)


def as_ended(text: str) -> bytes:
    """Return a string as `read_ended` reads it, without NULs; what UTF-8 cannot hold is replaced."""
    return text.replace("\0", "").encode("utf8", "replace") + b"\0"


def copy_documents(paths: Sequence[str | Path], options: TextOptions, directory: Path) -> TextCopy:
    """Return a copy of the documents of raw files, which is made unless there is one in the directory, undamaged.

    Args:
        paths, options: see `read_documents`.
        directory: that of the copy, which is complete or not there.

    Raises:
        UserError: a file cannot be read, or there are no documents.
    """
    known = _known(directory)
    if known is None:
        shutil.rmtree(directory, ignore_errors=True)
        skipped = Skipped()
        documents = refuse_none(read_sources(paths, options, skipped), skipped, paths)
        with new_directory(directory) as aside:
            with named(directory), create(aside / _TEXT) as texts, create(aside / _URLS) as urls:
                for document in documents:
                    texts.write(document.text.encode() + b"\0")
                    urls.write(as_ended(document.url))
            known = _Copied({name: sha256(aside / name) for name in (_TEXT, _URLS)}, skipped)
            replace_file(aside / _COPIED, msgspec.json.encode(known))
    return TextCopy(directory, known.skipped)


def _known(directory: Path) -> _Copied | None:
    """Return what is known of a copy; None: there is none, or it is damaged."""
    try:
        copied = msgspec.json.decode((directory / _COPIED).read_bytes(), type=_Copied)
        is_whole = all(sha256(directory / name) == digest for name, digest in copied.files.items())
    except (OSError, ValueError, RecursionError):
        return None
    return copied if is_whole else None
