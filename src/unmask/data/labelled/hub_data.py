"""Data sets on the Hugging Face Hub: `NAMESPACE/NAME[@REVISION][#[CONFIG/]SPLIT]` in place of a file.

Input: what was given as a source of labeled examples. Output: the same, or, if it is such a name, the split in the
cache of huggingface_hub, as records.py reads it: `DIR#CONFIG/SPLIT`. Of the files of a repository, only README.md
and those of the split are downloaded. A name that is like that of a file (`data/train.csv`), in whose place something
exists, or that starts in an existing folder, is a path; `hf://datasets/` before a name says that it is none.
"""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import Any

from unmask.data.labelled.card import NAME as CARD
from unmask.data.labelled.card import read_card
from unmask.data.labelled.records import find_split
from unmask.support import hub
from unmask.support.errors import UserError

PREFIX = "hf://datasets/"
KIND = "data set"
_SUFFIX = re.compile(r"\.[A-Za-z]\w*$")


def locate(source: str | Path) -> str | Path:
    """Return where a source of labeled examples is; a data set on the Hub is downloaded.

    Args:
        source: a path, or the name of a data set as text.

    Raises:
        UserError: huggingface_hub is not installed, the Hub cannot be reached, or it has no such data set or split.
    """
    text = str(source)
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
