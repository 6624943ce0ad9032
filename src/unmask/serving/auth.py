"""API keys: read from a file or the environment, stored and compared as digests in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from pathlib import Path

from unmask.support.errors import UserError

VARIABLE = "UNMASK_API_KEY"
"""Environment variable with a key."""
SHORTEST = 16
"""Minimum number of characters of a key."""


class Keys:
    """The API keys of a server; without any, everybody may ask.

    Args:
        keys: the keys.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def allow(self, authorization: bytes) -> bool:
        """Return whether the value of an Authorization header, `Bearer KEY`, has one of the keys."""
        scheme, _, key = authorization.partition(b" ")
        given = _digest(key.strip())
        found = False
        for digest in self._digests:  # all of them, so that the time does not depend on which one it is
            found |= hmac.compare_digest(digest, given)
        return (found and scheme.lower() == b"bearer") or not self._digests


def read_keys(path: str | None) -> Keys:
    """Return the keys in a file, one per line, and in the environment variable.

    Raises:
        UserError: the file cannot be read or has no key, or a key is short or has other than visible ASCII characters.
    """
    found = [os.environ[VARIABLE]] if os.environ.get(VARIABLE) else []
    if path is not None:
        try:
            lines = Path(path).read_text(encoding="utf8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError("the keys cannot be read", file=path, remedy="name a file with one key per line") from error
        listed = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not listed:
            raise UserError("no key", file=path, remedy="write one per line")
        found += listed
    for key in found:
        if len(key) < SHORTEST or not all("!" <= character <= "~" for character in key):
            raise UserError(
                f"a key has fewer than {SHORTEST} characters, or others than visible ASCII",
                file=path,
                remedy="generate one: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            )
    return Keys(found)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
