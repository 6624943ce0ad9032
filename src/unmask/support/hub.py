"""The Hugging Face Hub: names of repositories, metadata of cards, and errors of huggingface_hub as `UserError`s.

Input: NAMESPACE/NAME or NAMESPACE/NAME@REVISION in place of a path. A name in whose place something exists, or that
starts in an existing folder, is a path. The library (the extra `hub`) has the cache, and reads HF_ENDPOINT, HF_HOME,
HF_HUB_OFFLINE and the access token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unmask.support.errors import UserError

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
METADATA = re.compile(r"\ufeff?---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
"""The YAML at the beginning of the card (README.md) of a model or a data set."""
NAME = re.compile(rf"({_PART}/{_PART})(?:@([A-Za-z0-9][A-Za-z0-9._/-]{{0,199}}))?")
"""A name, and its revision."""


def parse(source: str | Path) -> tuple[str, str | None] | None:
    """Return the name and the revision of a repository on the Hub; None if a path was meant.

    Args:
        source: a MODEL argument, or the name of a data set.
    """
    match = NAME.fullmatch(source) if isinstance(source, str) else None
    if match is None or Path(source).exists() or Path(str(source).partition("/")[0]).exists():
        return None
    return match[1], match[2]


def import_hub(problem: str, kind: str = "model") -> Any:
    """Return huggingface_hub.

    Args:
        problem: what fails without it.
        kind: what is read from the Hub, "model" or "data set".

    Raises:
        UserError: it is not installed.
    """
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
    except ImportError as error:
        raise UserError(
            f"{problem}: {kind}s on the Hugging Face Hub need huggingface_hub",
            remedy=f"pip install 'unmask[hub]', or give the path of a {kind}",
        ) from error
    return huggingface_hub


@contextmanager
def explaining(hub: Any, name: str, revision: str | None, kind: str = "model") -> Iterator[None]:
    """Turn errors of the library into a `UserError` that says what to do.

    Args:
        hub: the library.
        name: NAMESPACE/NAME.
        revision: a branch, a tag or a commit; None: the main branch.
        kind: what it is, "model" or "data set".
    """
    errors, endpoint = hub.errors, hub.constants.ENDPOINT
    page, option, missing = f"{endpoint}/{name}", "", f"no directory '{name}'"
    if kind != "model":
        page, option, missing = f"{endpoint}/datasets/{name}", "--repo-type dataset ", f"no file '{name}'"
    try:
        yield
    except errors.GatedRepoError as error:
        raise UserError(
            f"access to {name} is restricted",
            remedy=f"accept its conditions at {page}, and log in: hf auth login",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"{name} has no revision '{revision or 'main'}'", remedy="check it") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(
            f"{missing}, and no {kind} of this name at {endpoint} that you may read",
            remedy="check the name; if it is private, log in: hf auth login",
        ) from error
    except errors.LocalEntryNotFoundError as error:
        offline = hub.constants.HF_HUB_OFFLINE
        why = "HF_HUB_OFFLINE is set" if offline else f"{endpoint} cannot be reached"
        raise UserError(
            f"{missing}, and no such {kind} in the cache, while {why}",
            remedy=f"download it where there is a connection: hf download {option}{name}",
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
