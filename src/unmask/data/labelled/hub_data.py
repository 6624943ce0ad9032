"""Data sets on the Hugging Face Hub: `NAMESPACE/NAME[@REVISION][#[CONFIG/]SPLIT]` in place of a file.

Input: what was given as a source of labeled examples. Output: the same, or, if it is such a name, the split in the
cache of huggingface_hub, as records.py reads it: `DIR#CONFIG/SPLIT`. Of the files of a repository, only README.md
and those of the split are downloaded. A name that is like that of a file (`data/train.csv`), in whose place something
exists, or that starts in an existing folder, is a path; `hf://datasets/` before a name says that it is none. A URL is
that of a file, also `hf://datasets/NAMESPACE/NAME/FILE.csv`.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unmask.data.labelled.splits import CARD, find_split, read_card
from unmask.support import hub
from unmask.support.choices import as_url
from unmask.support.errors import UserError
from unmask.support.urls import address_of

PREFIX = "hf://datasets/"
KIND = "data set"
_SUFFIX = re.compile(r"\.[A-Za-z]\w*$")


def locate(source: str | Path) -> str | Path:
    """Return where a source of labeled examples is: a path or a `Url`; a data set on the Hub is downloaded.

    Args:
        source: a path, a URL of a file, or the name of a data set as text.

    Raises:
        UserError: huggingface_hub is not installed, the Hub cannot be reached, or it has no such data set or split; or
            a URL cannot be read.
    """
    text = str(source)
    if is_url(source):
        url = source if address_of(source) else as_url(source)
        if "#" in (address_of(url) or text):
            raise UserError(
                "is a URL with a part after #: tables, sheets and splits are read from files on this machine",
                file=url,
                remedy="download it first",
            )
        return url
    if not text.startswith(PREFIX) and (isinstance(source, Path) or _is_file(text)):
        return source
    name, _, part = text.removeprefix(PREFIX).partition("#")
    if text.startswith(PREFIX):
        match = hub.NAME.fullmatch(name)
        if match is None:
            raise UserError(
                f"'{text}' is not the name of a data set",
                remedy=f"write {PREFIX}NAMESPACE/NAME, @REVISION and #CONFIG/SPLIT after it",
            )
        return _download(match[1], match[2], part)
    parsed = hub.parse(name)
    return source if parsed is None else _download(*parsed, part)


def is_url(source: str | Path) -> bool:
    """Return whether a source is the URL of a file, rather than a path or the name of a data set."""
    text = address_of(source) or str(source)
    if not text.startswith(PREFIX):
        return as_url(source) is not source or bool(address_of(source))
    name, _, _ = text.removeprefix(PREFIX).partition("#")
    return name.count("/") > 1 and _SUFFIX.search(name) is not None


def refuse_urls(sources: Iterable[str | Path], name: str | Path) -> None:
    """Check that what a file names is on this machine or in data sets: nobody else decides which servers are asked.

    Args:
        sources: the sources that the file names.
        name: the file.

    Raises:
        UserError: one is a URL.
    """
    for source in sources:
        if isinstance(source, str | Path) and is_url(source):
            raise UserError(
                f"names the URL {as_url(source)}, and URLs are read only where they are arguments",
                file=name,
                remedy="download the file",
            )


def _is_file(text: str) -> bool:
    """Return whether a source without the prefix is a path by its look."""
    name, _, _ = text.partition("#")
    return Path(text).exists() or _SUFFIX.search(name.partition("@")[0]) is not None


def _download(name: str, revision: str | None, part: str) -> str:
    library = hub.import_hub(f"no file '{name}'", KIND)
    with hub.explaining(library, name, revision, KIND):
        folder = Path(library.snapshot_download(name, repo_type="dataset", revision=revision, allow_patterns=[CARD]))
        paths, listed = _paths(library, name, folder)
    title = f"{name}@{revision}" if revision else name
    try:
        split = find_split(title, paths, read_card(folder), part, script=f"{name.partition('/')[2]}.py")
    except UserError as error:
        if listed:
            raise
        raise UserError(f"in the cache, without a connection to the Hub: {error.message}") from error
    if listed:
        patterns = [CARD, *map(glob.escape, split.files)]
        with hub.explaining(library, name, revision, KIND):
            library.snapshot_download(name, repo_type="dataset", revision=folder.name, allow_patterns=patterns)
    return f"{folder}#{split.part}"


def _paths(library: Any, name: str, folder: Path) -> tuple[list[str], bool]:
    """Return the paths of the files of a revision, and whether the Hub listed them; if not, those in the cache."""
    try:
        information = library.HfApi().dataset_info(name, revision=folder.name)  # not repeated without a connection
        return [file.rfilename for file in information.siblings], True
    except library.errors.OfflineModeIsEnabled:
        pass
    except Exception as error:
        if not type(error).__module__.startswith("httpx"):
            raise
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()], False
