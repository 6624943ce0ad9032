"""A copy of the documents of raw files, for text that is needed several times but read once.

A vocabulary is learned from all of a text before its first token is encoded. So that raw files are not decompressed,
parsed and cleaned again for that, and may be pipes, their documents are written to a file as UTF-8. Each ends with NUL,
which no document contains. The copy takes as much space as the text does uncompressed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from unmask.data.text.documents import Skipped, TextOptions, read_documents, refuse_none
from unmask.support.durable import create, named, new_directory, replace_file

_TEXT, _SKIPPED = "documents", "skipped.json"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class TextCopy:
    """Documents that were copied from raw files.

    Attributes:
        directory: where the copy is.
        skipped: documents that could not be used, and were not copied.
    """

    directory: Path
    skipped: Skipped

    def __iter__(self) -> Iterator[str]:
        """Yield the documents, holding at most one and a block of the file in memory."""
        rest = b""
        with (self.directory / _TEXT).open("rb") as file:
            while block := file.read(_BLOCK):
                *documents, rest = (rest + block).split(b"\0")
                yield from (document.decode() for document in documents)


def copy_documents(paths: Sequence[str | Path], options: TextOptions, directory: Path) -> TextCopy:
    """Return a copy of the documents of raw files, which is made unless there is one in the directory.

    Args:
        paths, options: see `read_documents`.
        directory: that of the copy, which is complete or not there.

    Raises:
        UserError: a file cannot be read, or there are no documents.
    """
    if not directory.exists():
        skipped = Skipped()
        documents = refuse_none(read_documents(paths, options, skipped), skipped, paths)
        with new_directory(directory) as aside:
            with named(directory), create(aside / _TEXT) as file:
                for document in documents:
                    file.write(document.encode() + b"\0")
            replace_file(aside / _SKIPPED, msgspec.json.encode(skipped))
    return TextCopy(directory, msgspec.json.decode((directory / _SKIPPED).read_bytes(), type=Skipped))
