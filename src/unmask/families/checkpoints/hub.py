"""Models on the Hugging Face Hub, whose names are parsed in support/hub.py.

Downloaded files are in the cache of huggingface_hub. Only the files that unmask reads are downloaded, and pickled
weights only where they are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from unmask.data.tokenizers.tokenizer import ALL_FILES as TOKENIZER_FILES
from unmask.families.checkpoints.safetensors_file import CHECKSUMS, INDEX, PICKLED, WEIGHTS, read_index
from unmask.families.checkpoints.sentence_files import LENGTH_FILES, PATTERNS
from unmask.support.beside import REFUSED_FILES
from unmask.support.errors import UserError
from unmask.support.hub import NAME, explaining, import_hub
from unmask.support.model_card import NAME as CARD

ARGUMENTS = "model_args.json"
"""File of simpletransformers; see config_file.py."""
_FILES = ("config.json", WEIGHTS, INDEX, CHECKSUMS, ARGUMENTS, *TOKENIZER_FILES)
ENCODER = "0_Transformer"
"""Usual name of the folder of the encoder in a directory of sentence-transformers, if it has one."""
_ENCODER_FILES = (*_FILES, *LENGTH_FILES, *REFUSED_FILES)
MANIFEST = "export.json"
"""File of an exported model that tells what it is; see inference/exported.py."""
CHECK = "check.safetensors"
"""Its inputs, and the outputs that the program had for them where it was exported."""
PROGRAM = (CHECK, "onnx/model*.onnx*", "model.onnx", "model.xml", "model.bin")
"""Patterns of the names of its program, and of the outputs to compare with."""
FILES = (*_FILES, CARD, MANIFEST, *PATTERNS, *REFUSED_FILES, *(f"{ENCODER}/{name}" for name in _ENCODER_FILES))
"""Names of the files that are downloaded, and patterns of such names, besides shards in an index and programs."""
_SNAPSHOT = re.compile(r"models--(.+?)--(.+)/snapshots/([0-9a-f]{40})")


def download(
    name: str, revision: str | None = None, *, allow_pickle: bool = False, files: Sequence[str] = FILES
) -> Path:
    """Return the directory in the cache with the files of a model, downloaded if they are not there.

    Args:
        name: NAMESPACE/NAME.
        revision: a branch, a tag or a commit; None: the main branch.
        allow_pickle: whether to download pickled weights if there are no others.
        files: names of the files, if not all that are read.

    Raises:
        UserError: huggingface_hub is not installed, the Hub cannot be reached, or it does not give out such a model.
    """
    hub = import_hub(f"no directory '{name}'")
    with explaining(hub, name, revision):
        folder = Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(files)))
        program = PROGRAM if (folder / MANIFEST).is_file() else ()
        more = _shards(folder) or program or ([PICKLED] if allow_pickle else [])
        if INDEX in files and more and not (folder / WEIGHTS).exists():
            folder = Path(hub.snapshot_download(name, revision=folder.name, allow_patterns=[*files, *more]))
    return folder


def _shards(folder: Path) -> list[str]:
    """Return the names of the files that the index of a model's weights lists; none without an index."""
    index = folder / INDEX
    return sorted({path.name for path in read_index(index).values()}) if index.is_file() else []


def revision_of(directory: Path) -> str:
    """Return NAMESPACE/NAME@COMMIT of a directory in the cache; "" for other directories."""
    match = _SNAPSHOT.search(directory.absolute().as_posix())
    return f"{match[1]}/{match[2]}@{match[3]}" if match else ""


def upload(directory: Path, name: str, *, private: bool = False) -> str:
    """Upload a model directory with its card to the Hub; a repository that does not exist is created.

    Args:
        directory: written by unmask, also an exported model, or a Hugging Face directory.
        name: NAMESPACE/NAME.
        private: whether a new repository is private.

    Returns:
        NAMESPACE/NAME@COMMIT.

    Raises:
        UserError: huggingface_hub is not installed, or the Hub refuses the upload.
    """
    if (match := NAME.fullmatch(name)) is None or match[2]:
        raise UserError(f"'{name}' is not the name of a repository", remedy="write NAMESPACE/NAME")
    names = (*FILES, *_shards(directory), *(PROGRAM if (directory / MANIFEST).is_file() else ()))
    paths = (path for name in names for path in directory.glob(name) if path.is_file())
    files: Sequence[str] = [path.relative_to(directory).as_posix() for path in paths]
    hub = import_hub("models cannot be uploaded")
    with explaining(hub, name, None):
        api = hub.HfApi()
        api.create_repo(name, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name, folder_path=directory, allow_patterns=list(files), commit_message="Upload with unmask"
        )
    return f"{name}@{commit.oid}"
