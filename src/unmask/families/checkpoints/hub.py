"""Models on the Hugging Face Hub: NAMESPACE/NAME or NAMESPACE/NAME@REVISION in place of a directory.

Downloaded files are in the cache of huggingface_hub (the extra `hub`), which also reads HF_ENDPOINT, HF_HOME,
HF_HUB_OFFLINE and the access token. Only the files that unmask reads are downloaded, and pickled weights only where
they are allowed. A name in whose place something exists, or that starts in an existing folder, is a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unmask.data.tokenizers.load import ALL_FILES as TOKENIZER_FILES
from unmask.families.checkpoints.safetensors_file import CHECKSUMS, INDEX, read_index
from unmask.families.checkpoints.sentence_files import LENGTH_FILES, PATTERNS
from unmask.support.beside import REFUSED_FILES
from unmask.support.errors import UserError

_FILES = ("config.json", "model.safetensors", INDEX, CHECKSUMS, *TOKENIZER_FILES)
ENCODER = "0_Transformer"
"""Usual name of the folder of the encoder in a directory of sentence-transformers, if it has one."""
FILES = (*_FILES, *PATTERNS, *REFUSED_FILES, *(f"{ENCODER}/{name}" for name in (*_FILES, *LENGTH_FILES)))
"""Names of the files that are downloaded, besides the shards that the index lists, and patterns of such names."""
PICKLE = "pytorch_model.bin"
CARD = "README.md"
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_NAME = re.compile(rf"({_PART}/{_PART})(?:@([A-Za-z0-9][A-Za-z0-9._/-]{{0,199}}))?")
_SNAPSHOT = re.compile(r"models--(.+?)--(.+)/snapshots/([0-9a-f]{40})")


def parse(source: str | Path) -> tuple[str, str | None] | None:
    """Return the name and the revision of a model on the Hub; None if a path was meant.

    Args:
        source: a MODEL argument.
    """
    match = _NAME.fullmatch(str(source)) if isinstance(source, str) else None
    if match is None or Path(source).exists() or Path(str(source).partition("/")[0]).exists():
        return None
    return match[1], match[2]


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
    hub = _library(f"no directory '{name}'")
    with _explaining(hub, name, revision):
        folder = Path(hub.snapshot_download(name, revision=revision, allow_patterns=list(files)))
        more = _shards(folder) or ([PICKLE] if allow_pickle else [])
        if INDEX in files and more and not (folder / "model.safetensors").exists():
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
        directory: written by unmask, or a Hugging Face directory.
        name: NAMESPACE/NAME.
        private: whether a new repository is private.

    Returns:
        NAMESPACE/NAME@COMMIT.

    Raises:
        UserError: huggingface_hub is not installed, or the Hub refuses the upload.
    """
    if (match := _NAME.fullmatch(name)) is None or match[2]:
        raise UserError(f"'{name}' is not the name of a repository", remedy="write NAMESPACE/NAME")
    names = (*FILES, *_shards(directory), CARD)
    paths = (path for name in names for path in directory.glob(name) if path.is_file())
    files: Sequence[str] = [path.relative_to(directory).as_posix() for path in paths]
    hub = _library("models cannot be uploaded")
    with _explaining(hub, name, None):
        api = hub.HfApi()
        api.create_repo(name, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name, folder_path=directory, allow_patterns=list(files), commit_message="Upload with unmask"
        )
    return f"{name}@{commit.oid}"


def _library(problem: str) -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
    except ImportError as error:
        raise UserError(
            f"{problem}: models on the Hugging Face Hub need huggingface_hub",
            remedy="pip install 'unmask[hub]', or give the directory of a model",
        ) from error
    return huggingface_hub


@contextmanager
def _explaining(hub: Any, name: str, revision: str | None) -> Iterator[None]:
    """Turn errors of the library into a `UserError` that says what to do."""
    errors, endpoint = hub.errors, hub.constants.ENDPOINT
    try:
        yield
    except errors.GatedRepoError as error:
        raise UserError(
            f"access to {name} is restricted",
            remedy=f"accept its conditions at {endpoint}/{name}, and log in: hf auth login",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"{name} has no revision '{revision or 'main'}'", remedy="check it") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"no directory '{name}', and no model of this name at {endpoint} that you may read",
            remedy="check the name; if it is private, log in: hf auth login",
        ) from error
    except errors.LocalEntryNotFoundError as error:
        offline = hub.constants.HF_HUB_OFFLINE
        why = "HF_HUB_OFFLINE is set" if offline else f"{endpoint} cannot be reached"
        raise UserError(
            f"no directory '{name}', and no such model in the cache, while {why}",
            remedy=f"download it where there is a connection: hf download {name}",
        ) from error
    except (errors.HfHubHTTPError, errors.HFValidationError, errors.OfflineModeIsEnabled) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        login = getattr(getattr(error, "response", None), "status_code", 0) in (401, 403)
        raise UserError(
            f"{endpoint} refuses {name} ({reason})" if login else f"{name}: {reason}",
            remedy="log in with a token that may do this: hf auth login" if login else "try again later",
        ) from error
    except Exception as error:
        if not type(error).__module__.startswith("httpx"):  # of the client, whose name depends on the version
            raise
        raise UserError(f"{name}: {endpoint} cannot be reached ({error})", remedy="try again later") from error
